"""One environment by itself: what the simulators behind the tasks have in common. Needs no torch.

Episodes are begun with a seed of their own, so an episode is known by its seed and its actions, and a state is known by
the seed and what `save` gives: nothing else of an environment's past matters.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
State = NDArray[np.float64]


class Outcome(NamedTuple):
    """What an action led to."""

    observation: Floats
    reward: float
    terminated: bool
    """The episode ended by the rules."""
    truncated: bool
    """The simulation itself cannot go on: it became invalid, and `observation` is the last valid one."""
    success: float
    """Whether the episode's goal has been reached so far, where the task has one; else 0."""


class Simulation(Protocol):
    """One environment with actions from -1 to 1."""

    def reset(self, seed: int) -> Floats:
        """Begin an episode with a 32-bit seed; returns its first observation."""

    def step(self, action: Floats) -> Outcome:
        """Act once."""

    def save(self) -> State:
        """What is needed, besides the episode's seed, to go on from here."""

    def restore(self, seed: int, state: State) -> None:
        """Go on from a state that was saved in the episode of that seed, in this or another object."""

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A picture, (height, width, 3)."""


class Replayed(ABC):
    """A simulation whose inner state cannot be reached: it is restored by acting out the episode again."""

    def __init__(self) -> None:
        self._actions: list[Floats] = []

    def reset(self, seed: int) -> Floats:
        """Begin an episode."""
        self._actions.clear()
        return self._begin(seed)

    def step(self, action: Floats) -> Outcome:
        """Act once."""
        self._actions.append(action.copy())
        return self._act(action)

    def save(self) -> State:
        """The actions of the episode so far."""
        return np.array(self._actions, np.float64).ravel()

    def restore(self, seed: int, state: State) -> None:
        """Begin the episode again and do in it what was done."""
        self.reset(seed)
        for action in state.astype(np.float32).reshape(-1, self._action_dim()):
            self.step(action)

    @abstractmethod
    def _begin(self, seed: int) -> Floats: ...

    @abstractmethod
    def _act(self, action: Floats) -> Outcome: ...

    @abstractmethod
    def _action_dim(self) -> int: ...
