"""A warm start (`load_model`): a new run that begins with the weights of another model, as far as they fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import Tensor

from lockstep.compute.ops import lstm_layout
from lockstep.config.config import AnyConfig
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import LockstepError, UserError, from_json, to_json
from lockstep.run.learner import Learner
from lockstep.storage.foreign_weights import is_foreign
from lockstep.storage.weights import load_weights

T = TypeVar("T")
_MOST_NAMED = 4


class ModelReader(Protocol):
    """What a warm start needs to know of a workload."""

    def read_foreign(self, config: Any, path: Path) -> Mapping[str, Tensor]:
        """Weights that another program stored, under the names of our network."""

    def adapted_weights(
        self, config: Any, world: World, source: Path, weights: Mapping[str, Tensor], needed: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Stored weights for a network of this configuration, whose own are `needed`. Called by every rank."""


@dataclass(frozen=True)
class Fitting:
    """Which of the stored weights a network can begin with; what is left out is named."""

    taken: dict[str, Tensor]
    misfits: tuple[str, ...]
    """Of another shape or kind, with both."""
    new: tuple[str, ...]
    """The network has them, the stored weights do not."""
    unused: tuple[str, ...]
    """The stored weights have them, the network does not."""

    @staticmethod
    def of(stored: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> "Fitting":
        """Compare stored weights with a network's, by name, shape and kind."""
        both = [name for name in needed if name in stored]
        misfits = {name: problem for name in both if (problem := _misfit(stored[name], needed[name]))}
        return Fitting(
            {name: stored[name] for name in both if name not in misfits},
            tuple(f"{shown(name)} ({problem})" for name, problem in misfits.items()),
            tuple(shown(name) for name in needed if name not in stored),
            tuple(shown(name) for name in stored if name not in needed),
        )

    def lines(self, source: str) -> list[str]:
        """What was loaded and what was not, for the user."""
        total = len(self.taken) + len(self.misfits) + len(self.new)
        lines = [f"load-model {source}: {len(self.taken)} of {total} tensors loaded"]
        left_out = {"did not fit, begin anew": self.misfits, "not in it, begin anew": self.new}
        for what, names in (left_out | {"in it without a place here": self.unused}).items():
            lines += [f"load-model: {what}: {_listed(names)}"] if names else []
        return lines


def warm_start(learner: Learner, world: World, config: AnyConfig, reader: ModelReader) -> list[str]:
    """Load the weights of `load_model` into a learner that has not begun; returns what to tell the user.

    Optimiser, counters and experience begin anew. Called by every rank: an error on one is raised on all.
    """
    source, needed = Path(config.run.load_model), learner.model.state_dict()

    def read() -> Mapping[str, Tensor]:
        if is_foreign(source):
            return reader.read_foreign(config, source)
        # Our own exports have LSTMs in PyTorch's layout.
        return lstm_layout.from_pytorch(load_weights(source)[0], learner.model)

    stored = _together(world, read)
    # Not together: adapting communicates itself.
    adapted = reader.adapted_weights(config, world, source, stored, needed)
    fitting = _together(world, lambda: _usable(source, Fitting.of(adapted, needed)))
    learner.begin_with(fitting.taken)
    return fitting.lines(str(source))


def _together(world: World, work: Callable[[], T]) -> T:
    """Do something on every rank; the error of one is raised on all of them. Called by every rank."""
    failure: dict[str, Any] = {}
    try:
        result = work()
    except LockstepError as error:
        failure = to_json(error)
    for other in filter(None, world.gather_json(failure)):
        raise from_json(other)
    return result


def _usable(source: Path, fitting: Fitting) -> Fitting:
    """The same; UserError if nothing in it can be used, or if it would do harm."""
    if not fitting.taken:
        first = f"did not fit: {_listed(fitting.misfits)}" if fitting.misfits else f"holds {_listed(fitting.unused)}"
        raise UserError(
            f"load_model {source}: none of its weights fit this network ({first}); "
            "give the network's settings that it was trained with, or leave --load-model out"
        )
    for name, tensor in fitting.taken.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UserError(f"load_model {source}: tensor {shown(name)} holds numbers that are not finite; not used")
    return fitting


def _misfit(have: Tensor, want: Tensor) -> str:
    if have.shape != want.shape:
        return f"{tuple(have.shape)} there, {tuple(want.shape)} here"
    # Another floating-point precision is converted on loading; integers cannot be weights.
    if have.is_floating_point() != want.is_floating_point():
        return f"{have.dtype} there, {want.dtype} here"
    return ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
