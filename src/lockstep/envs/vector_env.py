"""The contract between a batched environment and whoever acts in it. E: environments."""

from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


@dataclass
class Transition:
    """What one step returns. Episodes that ended have been reset already: `observation` belongs to the next one."""

    observation: Tensor
    """(E, ...) what to act on next."""
    reward: Tensor
    """(E,) float32."""
    terminated: Tensor
    """(E,) bool: the episode ended by the rules; its value is zero from here on."""
    truncated: Tensor
    """(E,) bool: the episode was cut; its value goes on and is estimated from `final_observation`."""
    final_observation: Tensor | None = None
    """(E, ...) the observation before the automatic reset; None where this environment never truncates."""
    info: dict[str, Tensor] = field(default_factory=dict)
    """(E,) numbers of the episode that ended, read where `terminated | truncated`."""


class BatchedEnv(Protocol):
    """E environments in one object, each known by its index over the whole run; `step` changes the state in place."""

    @property
    def count(self) -> int:
        """E."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one environment's observation."""

    def reset(self) -> Tensor:
        """Start every episode anew; returns the (E, ...) observation."""

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action each."""

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, each tensor with E as its first axis, so that lanes can be cut out of it."""

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Take up a state from `state`; returns the (E, ...) observation to act on."""


class VectorEnv(BatchedEnv, Protocol):
    """Environments with a number of actions to choose from: (E,) int64."""

    @property
    def action_count(self) -> int:
        """How many discrete actions there are."""


class ContinuousEnv(BatchedEnv, Protocol):
    """Environments whose action is a vector: (E, action_dim) float32 from -1 to 1; observation (E, D) float32.

    One that computes on the host answers with host tensors, whatever device its learner has. Components of an action
    that an environment's task does not have are ignored.
    """

    @property
    def index(self) -> Tensor:
        """(E,) int64: each environment's number over the whole run."""

    @property
    def task(self) -> Tensor:
        """(E,) int64: the number of each environment's task; zero where there is one."""

    @property
    def steps(self) -> Tensor:
        """(E,) int64, on the host: steps of each episode so far; zero where the next action is its first."""

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
