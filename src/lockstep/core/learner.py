"""The contract between the loop, which owns *when*, and a learner, which owns *what*."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import Any, Protocol

from torch import nn

from lockstep.core.config.values import shown
from lockstep.core.errors import UserError
from lockstep.core.reporting.metrics import Stats
from lockstep.core.storage.checkpoint import Snapshot


@dataclass
class Evaluation:
    """Returns and lengths of whole episodes, in episode order."""

    returns: list[float]
    lengths: list[int]
    seed: int
    extra: dict[str, list[float]] = field(default_factory=dict)
    """What the environment says about each episode."""

    def score(self) -> float:
        """The mean return: what `best` is chosen by."""
        return fmean(self.returns)

    def numbers(self) -> dict[str, float]:
        """What is worth a place in the log, under `eval/`."""
        return {name: value for name, value in self.summary().items() if name.endswith("_mean")}

    def summary(self) -> dict[str, Any]:
        """The content of evaluation.json."""
        columns = {"return": self.returns, "length": [float(length) for length in self.lengths], **self.extra}
        numbers = {f"{name}_{label}": value for name, column in columns.items() for label, value in _describe(column)}
        lists: dict[str, Any] = {"episode_returns": self.returns, "episode_lengths": self.lengths}
        lists |= {f"episode_{name}": column for name, column in self.extra.items()}
        return {"episodes": len(self.returns), "seed": self.seed, **numbers, **lists}


def _describe(column: list[float]) -> list[tuple[str, float]]:
    return [
        ("mean", fmean(column)),
        ("deviation", pstdev(column)),
        ("min", min(column)),
        ("max", max(column)),
        ("median", median(column)),
    ]


class Learner(Protocol):
    """An algorithm bound to a workload. Every method is called by every rank."""

    model: nn.Module
    """The weights that a run is about, equal on all ranks."""
    updates: int
    """Updates done."""
    steps: int
    """Environment steps, or samples, seen over all ranks."""
    total_steps: int
    """Steps after which the run is complete."""

    def step(self) -> list[Stats]:
        """One update; returns what each cohort of this rank has to report."""

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """How good the model is now."""

    def done(self) -> bool:
        """Whether the run is complete."""

    def state(self) -> Snapshot:
        """Everything needed to go on: the world's part on every rank, the lanes of this rank."""

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """A state as `state` gives it once its counters are these, for names, shapes and types alone.

        Called after `state`, and not by every rank at once: it exchanges nothing.
        """

    def load(self, snapshot: Snapshot) -> None:
        """Take up a state from `state`, saved by any number of ranks."""

    def timings(self) -> dict[str, float]:
        """Seconds of this rank since the last call, by part: environment, acting, learning, ..."""


def asks_for_evaluation(learner: Learner) -> bool:
    """Whether the learner itself says that now is the time for one, as at the end of an epoch; most never do."""
    return bool(getattr(learner, "evaluation_due", False))


def refuse_other_data(started_with: str | None, now: str) -> None:
    """See that the data is what a saved state was made with, where both digests are known."""
    if started_with and now and started_with != now:
        raise UserError(
            f"data: its digest is {now}, and was {shown(started_with)} when this run was started; "
            "a run goes on with the data it was started with: put that back, or start another run"
        )


def data_digest(learner: Learner) -> str:
    """What tells the learner's data from other data; empty where it has none, as with environments."""
    return str(getattr(learner, "data_digest", ""))
