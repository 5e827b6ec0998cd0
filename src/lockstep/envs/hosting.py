"""Runs several simulations one after another, in this process or in a worker. Needs no torch.

N: simulations, O: size of the largest observation, A: size of the largest action. A step returns one float32 table with
a row for each simulation, so that it is sent in one piece: to another process, and to a GPU.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.envs.simulation import Floats, Simulation, State

REWARD, TERMINATED, TRUNCATED, SUCCESS = range(4)
"""Columns of the last part of a row; the first two parts are the next and the final observation."""
RESULTS = 4


@dataclass(frozen=True)
class Sizes:
    """How wide the tables are: the same in every process of a run."""

    observation: int
    action: int

    @property
    def row(self) -> int:
        """Numbers in a row of the table that a step returns."""
        return 2 * self.observation + RESULTS


@dataclass(frozen=True)
class Simulators:
    """Describes the simulations to open; only strings and numbers, so that it can be sent as JSON."""

    opener: str
    """`module:function`, called with (name, whether to support `render`)."""
    names: tuple[str, ...]
    """What to open for each of the N, as the opener understands it."""
    action_dims: tuple[int, ...]
    """Action size of each; the rest of its row is ignored."""
    sizes: Sizes

    def part(self, rows: slice) -> "Simulators":
        """The simulations of these rows."""
        return Simulators(self.opener, self.names[rows], self.action_dims[rows], self.sizes)

    def open(self, pictures: bool) -> list[Simulation]:
        """Open them; `pictures`: able to `render`."""
        module, _, function = self.opener.partition(":")
        opener: Callable[[str, bool], Simulation] = getattr(importlib.import_module(module), function)
        return [opener(name, pictures) for name in self.names]


class Host:
    """N simulations in this process."""

    def __init__(self, simulators: Simulators, pictures: bool = False) -> None:
        self._simulations = simulators.open(pictures)
        self._action_dims, self._sizes = simulators.action_dims, simulators.sizes

    def reset(self, seeds: NDArray[np.uint32]) -> Floats:
        """Start an episode in each, with seeds (N,); returns the observations (N, O)."""
        observations = np.zeros((len(self._simulations), self._sizes.observation), np.float32)
        for row, simulation, seed in zip(observations, self._simulations, seeds, strict=True):
            _fill(row, simulation.reset(int(seed)))
        return observations

    def step(self, actions: Floats, seeds: NDArray[np.uint32], last: NDArray[np.bool_]) -> Floats:
        """Apply one action (N, A) to each, and reset those whose episode ended; returns the table (N, row).

        `seeds` (N,): of the next episodes. `last` (N,): whether the time limit truncates the episode after this step.
        """
        width = self._sizes.observation
        table = np.zeros((len(self._simulations), self._sizes.row), np.float32)
        for i, simulation in enumerate(self._simulations):
            done = simulation.step(actions[i, : self._action_dims[i]])
            # An episode that ends by the rules at its time limit is not truncated: nothing would have followed.
            truncated = not done.terminated and (bool(last[i]) or done.truncated)
            row, results = table[i], table[i, 2 * width :]
            _fill(row[width:], done.observation)
            results[:] = done.reward, done.terminated, truncated, done.success
            ended = done.terminated or truncated
            _fill(row, simulation.reset(int(seeds[i])) if ended else done.observation)
        return table

    def save(self) -> list[State]:
        """The state of each."""
        return [simulation.save() for simulation in self._simulations]

    def restore(self, seeds: NDArray[np.uint32], states: Sequence[State]) -> None:
        """Restore each to a state saved in the episode with that seed."""
        for simulation, seed, state in zip(self._simulations, seeds, states, strict=True):
            simulation.restore(int(seed), state)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """An image of the first, of about that size: (height, width, 3)."""
        return self._simulations[0].render(height, width)


def packed(states: Sequence[State], at_least: int = 0) -> NDArray[np.float64]:
    """(N, 1 + longest) states of different lengths in one table: the length, the state, zeros."""
    table = np.zeros((len(states), 1 + max(at_least, *map(len, states))))
    for row, state in zip(table, states, strict=True):
        row[0] = len(state)
        row[1 : 1 + len(state)] = state
    return table


def unpacked(table: NDArray[np.float64]) -> list[State]:
    """The inverse of `packed`."""
    return [row[1 : 1 + int(row[0])] for row in table]


def _fill(row: Floats, values: Floats) -> None:
    row[: len(values)] = values
