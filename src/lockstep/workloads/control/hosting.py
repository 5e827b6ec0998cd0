"""Some environments together, stepped one after another, in this process or in a worker. Needs no torch.

N: environments, O: numbers in the longest observation, A: in the longest action. What a step gives is one table of
float32, a row for each environment, so that it travels in one piece: to another process, and to a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.workloads.control import names
from lockstep.workloads.control.simulation import Floats, Simulation, State

REWARD, TERMINATED, TRUNCATED, SUCCESS = range(4)
"""Columns of a row's last part; before it stand the observation and the final observation."""
RESULTS = 4


def open_simulation(task: str, pictures: bool = False) -> Simulation:
    """The simulation of a task, able to `render` where pictures are wanted."""
    if task in names.SUITE:
        from lockstep.workloads.control.suite import SuiteSimulation

        return SuiteSimulation(task)
    if task in names.MT50:
        from lockstep.workloads.control.metaworld_tasks import MetaWorldSimulation

        return MetaWorldSimulation(task)
    from lockstep.workloads.control.gymnasium_tasks import GymnasiumSimulation

    return GymnasiumSimulation(task, pictures)


@dataclass(frozen=True)
class Sizes:
    """How wide the tables are: the same wherever environments of a run are."""

    observation: int
    action: int

    @property
    def row(self) -> int:
        """Numbers in a row of what a step gives."""
        return 2 * self.observation + RESULTS


class Host:
    """N environments."""

    def __init__(self, tasks: Sequence[str], action_dims: Sequence[int], sizes: Sizes, pictures: bool = False) -> None:
        self._simulations = [open_simulation(task, pictures) for task in tasks]
        self._action_dims = action_dims
        self._sizes = sizes

    def reset(self, seeds: NDArray[np.uint32]) -> Floats:
        """Begin an episode in each, with seeds (N,); returns the observations (N, O)."""
        observations = np.zeros((len(self._simulations), self._sizes.observation), np.float32)
        for row, simulation, seed in zip(observations, self._simulations, seeds, strict=True):
            _fill(row, simulation.reset(int(seed)))
        return observations

    def step(self, actions: Floats, seeds: NDArray[np.uint32], last: NDArray[np.bool_]) -> Floats:
        """Act (N, A) once in each; an episode that ends, or was allowed no further step (N,), makes room for the next.

        `seeds` (N,) are those of the next episodes. Returns the table (N, row).
        """
        width = self._sizes.observation
        table = np.zeros((len(self._simulations), self._sizes.row), np.float32)
        for i, simulation in enumerate(self._simulations):
            done = simulation.step(actions[i, : self._action_dims[i]])
            truncated = not done.terminated and (bool(last[i]) or done.truncated)
            row, results = table[i], table[i, 2 * width :]
            _fill(row[width:], done.observation)
            results[:] = done.reward, done.terminated, truncated, done.success
            ended = done.terminated or truncated
            _fill(row, simulation.reset(int(seeds[i])) if ended else done.observation)
        return table

    def save(self) -> list[State]:
        """What each needs to go on."""
        return [simulation.save() for simulation in self._simulations]

    def restore(self, seeds: NDArray[np.uint32], states: Sequence[State]) -> None:
        """Let each go on from a state of the episode with that seed."""
        for simulation, seed, state in zip(self._simulations, seeds, states, strict=True):
            simulation.restore(int(seed), state)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A picture of the first, of about that size: (height, width, 3)."""
        return self._simulations[0].render(height, width)


def packed(states: Sequence[State], at_least: int = 0) -> NDArray[np.float64]:
    """(N, 1 + longest) states of any lengths, each behind its length and filled up with zeros."""
    table = np.zeros((len(states), 1 + max(at_least, *map(len, states))))
    for row, state in zip(table, states, strict=True):
        row[0] = len(state)
        row[1 : 1 + len(state)] = state
    return table


def unpacked(table: NDArray[np.float64]) -> list[State]:
    """The states that `packed` put together."""
    return [row[1 : 1 + int(row[0])] for row in table]


def _fill(row: Floats, values: Floats) -> None:
    row[: len(values)] = values
