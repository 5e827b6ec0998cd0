"""The interface of batched environments. E: environments."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lockstep.envs.failures import REMEDY, failures_told
from lockstep.errors import LockstepError, RunFailed


@dataclass
class Transition:
    """What one step returns. Finished episodes have already been reset: `observation` belongs to the next one."""

    observation: Tensor
    """(E, ...) what to act on next."""
    reward: Tensor
    """(E,) float32."""
    terminated: Tensor
    """(E,) bool: the episode ended by the rules; its value is zero from here on."""
    truncated: Tensor
    """(E,) bool: the episode was cut off; the value of the rest is estimated from `final_observation`."""
    final_observation: Tensor | None = None
    """(E, ...) the observation before the automatic reset; None if this environment never truncates."""
    info: dict[str, Tensor] = field(default_factory=dict)
    """(E,) numbers about the finished episode, valid where `terminated | truncated`."""
    valid: Tensor | None = None
    """(E,) bool: False for a step that nobody took, which is not learned from; None = all are valid. Teams: (E, A)."""

    def to(self, device: torch.device) -> "Transition":
        """The same on another device; hosted environments return host tensors, which the learner moves to its GPU."""
        if self.reward.device == device:
            return self
        final, valid = self.final_observation, self.valid
        return Transition(
            observation=self.observation.to(device),
            reward=self.reward.to(device),
            terminated=self.terminated.to(device),
            truncated=self.truncated.to(device),
            final_observation=None if final is None else final.to(device),
            info={name: value.to(device) for name, value in self.info.items()},
            valid=None if valid is None else valid.to(device),
        )


class BatchedEnv(Protocol):
    """E environments in one object, each with a number that is unique in the run; `step` updates the state in place."""

    @property
    def count(self) -> int:
        """E."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of a single environment's observation."""

    def reset(self) -> Tensor:
        """Start a new episode everywhere; returns the (E, ...) observation."""

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action."""

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume, each tensor with E as its first axis, so that it can be split into lanes."""

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned; returns the (E, ...) observation to act on."""


class VectorEnv(BatchedEnv, Protocol):
    """Environments with discrete actions: (E,) int64."""

    @property
    def action_count(self) -> int:
        """How many discrete actions there are."""


@runtime_checkable
class ContinuousEnv(BatchedEnv, Protocol):
    """Environments whose action is a vector: (E, action_dim) float32 from -1 to 1; observation (E, D) float32.

    Environments that run on the host return host tensors, whatever device the learner uses. Components of an action
    that an environment's task does not have are ignored.
    """

    @property
    def index(self) -> Tensor:
        """(E,) int64: each environment's number in the whole run."""

    @property
    def task(self) -> Tensor:
        """(E,) int64: the number of each environment's task; zero if there is only one."""

    @property
    def steps(self) -> Tensor:
        """(E,) int64, on the host: length of each episode so far; zero before its first action."""

    @property
    def action_dim(self) -> int:
        """Action size."""


class TeamEnv(BatchedEnv, Protocol):
    """Environments in which A agents act at once: observation (E, A, ...), reward (E, A).

    Actions are (E, A), or (E, A, K) from -1 to 1 if they are continuous.

    Either episodes only terminate, for all agents together: then `terminated` is (E,), and no value has to be estimated
    for the rest of one. Or agents leave at different times or are cut off: then `terminated`, `truncated` and `valid`
    are (E, A), an episode ends when every agent is one of the first two, and `final_observation` is given. An agent
    that is no longer there counts as terminated, with `valid` False, no reward, and zeros as its observation.
    """

    def prepare(self, steps: int) -> dict[str, float]:
        """Prepare the round that starts after `steps` steps over all ranks; returns metrics to report.

        Rounds with equal metrics must run the same code, so that one recorded graph serves them all.
        """


@contextmanager
def failures_of(index: Tensor, method: str) -> Iterator[None]:
    """RunFailed with the numbers (E,) of a batch of environments if this method of theirs fails."""

    def failed(problem: str) -> RunFailed:
        # Read only now: reading a number waits for a GPU.
        numbers = f"environments {int(index[0])} to {int(index[-1])}"
        return RunFailed(f"{numbers}: failed in {method} ({problem}); {REMEDY}")

    # Too little memory on a GPU is dealt with by the launcher.
    with failures_told(failed, passing=(LockstepError, torch.OutOfMemoryError)):
        yield
