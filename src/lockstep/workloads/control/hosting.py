"""Some environments together, stepped one after another, in this process or in a worker. Needs no torch.

N: environments, O: numbers in the longest observation, A: in the longest action. What a step gives is one table of
float32, a row for each environment, so that it travels in one piece: to another process, and to a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.workloads.control.simulation import Floats, Simulation, State

REWARD, TERMINATED, TRUNCATED, SUCCESS = range(4)
"""Columns of a row's last part; before it stand the observation and the final observation."""
RESULTS = 4


def open_simulation(task: str) -> Simulation:
    """The simulation of a task."""
    from lockstep.workloads.control import names

    if task in names.SUITE:
        from lockstep.workloads.control.suite import SuiteSimulation

        return SuiteSimulation(task)
    raise AssertionError(f"no such task: {task}")


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

    def __init__(self, tasks: Sequence[str], action_dims: Sequence[int], sizes: Sizes) -> None:
        self._simulations = [open_simulation(task) for task in tasks]
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
            truncated = not done.terminated and (bool(last[i]) or done.failed)
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


def _fill(row: Floats, values: Floats) -> None:
    row[: len(values)] = values
