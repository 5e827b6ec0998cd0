"""The contract between the loop, which owns *when*, and a learner, which owns *what*."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stats
from lockstep.storage.checkpoint import Snapshot


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
