"""The contract between the loop, which decides *when*, and a learner, which decides *what*."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from torch import Tensor, nn

from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stats
from lockstep.storage.checkpoint import Snapshot
from lockstep.storage.program_file import Program


class Player(Protocol):
    """A trained model that acts, one call for each step. B: observations."""

    def act(self, observation: Any, env: Any = None, *, explore: bool = False) -> tuple[Tensor, Tensor | None]:
        """Actions for a batch of observations, and the probabilities of all actions if they are discrete; on the CPU.

        env: the environment of the observations, for a model that plans with it. explore: act with the exploration
        noise of training instead of greedily.
        """

    def probabilities(self, observation: Any) -> Tensor | None:
        """The probability of every action (B, A), on the CPU, without updating memory. None for vector actions."""

    def forget(self, ended: Tensor | None = None) -> None:
        """Reset the memory of the environments whose episodes ended (B,), or of all."""


class Learner(ABC):
    """An algorithm bound to a problem. All ranks call every method, unless it says otherwise."""

    model: nn.Module
    """The trained weights, equal on all ranks."""
    total_steps: int
    """Steps after which the run is complete."""
    updates: int = 0
    """Updates done."""
    steps: int = 0
    """Environment steps, or samples, seen over all ranks."""
    gradient_updates: int = 0
    """Optimiser steps, if an update has many of them and the learner counts them."""
    observation_shape: tuple[int, ...] = (0,)
    """The shape of one observation, as its player takes them in batches."""
    sample: Any = None
    """What one sample of the data looks like, as JSON; None if it learns from environments, or it is not known."""
    score_name: str = "return_mean"
    """What the best model is chosen by: its metric is `eval/` and this name."""
    lower_is_better: bool = False
    """Whether a lower value of that is better."""
    evaluation_due: bool = False
    """Whether the learner itself asks for an evaluation now, e.g. at the end of an epoch."""

    safe_point: Callable[..., bool] = staticmethod(lambda part, busy=True: False)
    """To be called, with the part of the update (acting, learning), wherever a long update may be abandoned: between
    environment steps and gradient steps, by all ranks equally often. Without such calls an update always ends. In an
    evaluation the part is `evaluating`; `busy` is for ranks with unequal work (see run.safe_points)."""

    data_record: Mapping[str, str] = MappingProxyType({})
    """Facts about the data, its `digest` among them, which are kept with the weights; empty if there are none."""

    @property
    def data_digest(self) -> str:
        """A digest that identifies the learner's data; empty if it has none."""
        return self.data_record.get("digest", "")

    @abstractmethod
    def step(self) -> list[Stats]:
        """One update; returns the metrics of each cohort of this rank."""

    def review(self) -> None:  # noqa: B027 - most learners have nothing to do here
        """What an update is followed by before `done` is asked, such as a validation that decides on early stopping.

        Called once after every `step`. A stop may abandon it at a safe point: it is then called again after the resume,
        so whatever it changes of the learner comes after its last safe point.
        """

    def advance(self) -> list[Stats]:
        """`step` and `review`, for whoever trains without the loop."""
        reports = self.step()
        self.review()
        return reports

    @abstractmethod
    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Evaluate the current model over whole episodes."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the run is complete."""

    @abstractmethod
    def state(self) -> Snapshot:
        """Everything needed to continue: the replicated part, and the state of this rank's lanes."""

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """A state with the names, shapes and types that `state` would have with these counters; values do not matter.

        Called after `state`, by single ranks: it must not communicate.
        """
        return self.state()

    @abstractmethod
    def load(self, snapshot: Snapshot) -> None:
        """Continue from a state that `state` returned, saved by any number of ranks."""

    def begin_with(self, weights: Mapping[str, Tensor]) -> None:
        """Take over some or all weights of another model before the first step; everything else begins anew."""
        self.model.load_state_dict({**self.model.state_dict(), **weights})

    def timings(self) -> dict[str, float]:
        """This rank's seconds since the last call, by part: environment, acting, learning, ..."""
        return {}

    def player(self, seed: int) -> Player:
        """The model as a player with its own seed. Called by a single rank."""
        raise UserError(f"{type(self).__name__}: its model cannot play")

    def program(self) -> Program:
        """The model as a function of tensors, for programs that do not have Lockstep. Called by a single rank."""
        raise UserError(f"{type(self).__name__}: its model takes more than tensors; export it as safetensors")


def refuse_other_data(started_with: str | None, now: str) -> None:
    """Raise UserError if the data is not the one a saved state was made with, if both digests are known."""
    if started_with and now and started_with != now:
        raise UserError(
            f"data: its digest is {now}, but was {shown(started_with)} when this run was started; "
            "a run continues with the data it was started with: restore that, or start another run"
        )


def refuse_other_record(place: str, recorded: Any, now: Mapping[str, str]) -> None:
    """Raise UserError if a checkpoint says of its data anything else than is so now.

    `recorded`: what its manifest says; None in checkpoints of versions that did not record it.
    """
    before = recorded if isinstance(recorded, dict) else now if recorded is None else {}
    for fact in {**now, **before}:
        if before.get(fact) != now.get(fact):
            name, old, new = fact.replace("_", " "), shown(before.get(fact, "none")), shown(now.get(fact, "none"))
            raise UserError(
                f"{place}: was trained on data with {name} {old}, not {new}; "
                "a run continues with the data it was started with: restore that, or start a new run"
            )
