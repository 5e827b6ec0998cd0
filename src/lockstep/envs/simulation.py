"""The interface of a single simulated environment. Needs no torch.

Every episode starts from its own seed, so its seed and actions determine an episode, and its seed and the result of
`save` determine a state. Nothing else of an environment's past matters.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
State = NDArray[np.float64]
Observation = NDArray[Any]
"""A flat row of float32, or of uint8 for images."""


class Outcome(NamedTuple):
    """The result of a step."""

    observation: Observation
    reward: float
    terminated: bool
    """The episode ended by the rules."""
    truncated: bool
    """The episode was cut off by the simulation itself, which became invalid or has a time limit of its own."""
    success: float
    """1 if the episode's goal has been reached so far; 0 if not, or if the task has no goal."""
    agents: Floats | None = None
    """For several agents, (4, agents): their rewards, terminations and truncations, and who took part in the step."""
    following: Observation | None = None
    """What to act on next, if that is not `observation`: without agents whose part ended with this step."""


class Simulation(Protocol):
    """One environment: continuous actions are numbers from -1 to 1, discrete ones whole numbers from 0."""

    def reset(self, seed: int) -> Observation:
        """Start an episode with a 32-bit seed; returns its first observation."""

    def step(self, action: Floats) -> Outcome:
        """Apply one action."""

    def save(self) -> State:
        """What is needed, besides the episode's seed, to restore this state."""

    def restore(self, seed: int, state: State) -> None:
        """Restore a state that was saved in the episode with that seed, by this object or another."""

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """An image, (height, width, 3)."""


class Replayed(ABC):
    """A simulation whose internal state is not accessible: it is restored by replaying the episode's actions."""

    def __init__(self) -> None:
        self._actions: list[Floats] = []

    def reset(self, seed: int) -> Observation:
        """Start an episode."""
        self._actions.clear()
        return self._begin(seed)

    def step(self, action: Floats) -> Outcome:
        """Apply one action."""
        # A copy: the array may be a view of a buffer that the caller uses again.
        self._actions.append(action.copy())
        return self._act(action)

    def save(self) -> State:
        """The actions of the episode so far."""
        return np.array(self._actions, np.float64).ravel()

    def restore(self, seed: int, state: State) -> None:
        """Start the episode again and replay its actions."""
        # float32 numbers pass through float64 unchanged, so the replay gets the same actions to the last bit.
        self.reset(seed)
        for action in state.astype(np.float32).reshape(-1, self._action_dim()):
            self.step(action)

    @abstractmethod
    def _begin(self, seed: int) -> Observation: ...

    @abstractmethod
    def _act(self, action: Floats) -> Outcome: ...

    @abstractmethod
    def _action_dim(self) -> int: ...
