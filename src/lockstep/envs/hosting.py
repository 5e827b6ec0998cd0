"""Runs several simulations one after another, in this process or in a worker. Needs no torch.

N: simulations, O: size of the largest observation, A: size of the largest action. A step returns one table with a row
for each simulation, so that it is sent in one piece: to another process, and to a GPU.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.envs.failures import REMEDY, failures_told
from lockstep.envs.simulation import Floats, Observation, Simulation, State
from lockstep.envs.watchdog import Hung, watchdog
from lockstep.errors import RunFailed

REWARD, TERMINATED, TRUNCATED, SUCCESS = range(4)
"""Columns of a row's results."""
RESULTS = 4
AGENT_REWARD, AGENT_TERMINATED, AGENT_TRUNCATED, ACTED = range(4)
"""Rows of a team's results."""
Table = NDArray[Any]
"""(N,) rows with the fields `observation` (O,), `final` (O,), `results` (4,), and `agents` (4, agents) for teams."""


@dataclass(frozen=True)
class Sizes:
    """How wide the tables are: the same in every process of a run."""

    observation: int
    action: int
    dtype: str = "float32"
    """Type of an observation's numbers: float32, or uint8 for images."""
    agents: int = 0
    """Agents of each simulation, if they have rewards of their own."""

    @property
    def row(self) -> np.dtype[Any]:
        """The fields of a row of the table that a step returns: the next and the final observation, and results."""
        fields: list[tuple[str, str, tuple[int, ...]]] = [
            ("observation", self.dtype, (self.observation,)),
            ("final", self.dtype, (self.observation,)),
            ("results", "float32", (RESULTS,)),
        ]
        if self.agents:
            fields.append(("agents", "float32", (RESULTS, self.agents)))
        # Aligned: torch can view the results as float32 only if bytes before them are a multiple of four.
        return np.dtype(fields, align=True)


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
    numbers: tuple[int, ...] = ()
    """Each environment's number in the whole run, for error messages; empty = from 0."""
    timeout: float = 300.0
    """Seconds after which a step or a reset counts as hung."""

    def part(self, rows: slice) -> "Simulators":
        """The simulations of these rows."""
        numbers = tuple(self.number(row) for row in range(len(self.names)))
        return replace(self, names=self.names[rows], action_dims=self.action_dims[rows], numbers=numbers[rows])

    def number(self, row: int) -> int:
        """The number, in the whole run, of the environment in a row."""
        return self.numbers[row] if self.numbers else row

    def open(self, pictures: bool) -> list[Simulation]:
        """Open them; `pictures`: able to `render`."""
        module, _, function = self.opener.partition(":")
        opener: Callable[[str, bool], Simulation] = getattr(importlib.import_module(module), function)
        return [opener(name, pictures) for name in self.names]


class Host:
    """N simulations in this process."""

    def __init__(self, simulators: Simulators, pictures: bool = False) -> None:
        self._simulators = simulators
        self._simulations = simulators.open(pictures)
        self._action_dims, self._sizes = simulators.action_dims, simulators.sizes
        self._row = simulators.sizes.row
        self._watchdog = watchdog()
        self._steps = 0
        """Steps of every environment since it was opened, for error messages."""

    def reset(self, seeds: NDArray[np.uint32]) -> NDArray[Any]:
        """Start an episode in each, with seeds (N,); returns the observations (N, O)."""
        observations = np.zeros((len(self._simulations), self._sizes.observation), self._sizes.dtype)
        with self._named("reset") as at:
            for i, (simulation, seed) in enumerate(zip(self._simulations, seeds, strict=True)):
                at[0] = i
                _fill(observations[i], simulation.reset(int(seed)))
        self._refuse_non_finite(observations, "its first observation")
        return observations

    def step(self, actions: Floats, seeds: NDArray[np.uint32], last: NDArray[np.bool_]) -> Table:
        """Apply one action (N, A) to each, and reset those whose episode ended; returns the table (N,).

        `seeds` (N,): of the next episodes. `last` (N,): whether the time limit truncates the episode after this step.
        """
        table = np.zeros(len(self._simulations), self._row)
        observations, finals, results = table["observation"], table["final"], table["results"]
        # What is written row by row costs as much as a cheap environment's step, so it goes into the table all at once.
        rows: list[tuple[float, bool, bool, float]] = []
        others: dict[int, Observation] = {}
        self._steps += 1
        # A list: reading one number of an array takes several times as long.
        cut_off = last.tolist()
        with self._named("step") as at:
            for i, simulation in enumerate(self._simulations):
                at[0] = i
                done = simulation.step(actions[i, : self._action_dims[i]])
                # An episode that ends by the rules at its time limit is not truncated: nothing would have followed.
                truncated = not done.terminated and (cut_off[i] or done.truncated)
                _fill(finals[i], done.observation)
                rows.append((done.reward, done.terminated, truncated, done.success))
                if done.terminated or truncated:
                    others[i] = simulation.reset(int(seeds[i]))
                elif done.following is not None:
                    others[i] = done.following
                if done.agents is not None:
                    table["agents"][i] = done.agents
            results[:] = rows
            # Mostly, what comes next is what was seen last.
            observations[:] = finals
            for i, observation in others.items():
                at[0] = i
                observations[i] = 0
                _fill(observations[i], observation)
        # One look at everything; which environment is wrong is asked only if one is.
        if not np.isfinite(table.view(np.float32) if self._sizes.dtype == "float32" else results).all():
            self._refuse_non_finite(results, "its reward")
            self._refuse_non_finite(finals, "its observation")
            self._refuse_non_finite(observations, "its first observation")
        return table

    def save(self) -> list[State]:
        """The state of each."""
        states = []
        with self._named("save") as at:
            for i, simulation in enumerate(self._simulations):
                at[0] = i
                states.append(simulation.save())
        return states

    def restore(self, seeds: NDArray[np.uint32], states: Sequence[State]) -> None:
        """Restore each to a state saved in the episode with that seed."""
        with self._named("restore") as at:
            for i, (simulation, seed, state) in enumerate(zip(self._simulations, seeds, states, strict=True)):
                at[0] = i
                simulation.restore(int(seed), state)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """An image of the first, of about that size: (height, width, 3)."""
        return self._simulations[0].render(height, width)

    @contextmanager
    def _named(self, action: str) -> Iterator[list[int]]:
        """Name the environment in the error if one of its methods fails; the body keeps its row in the list."""
        # One list cell instead of a `try` around every call: steps are counted in microseconds.
        at = [0]
        with failures_told(lambda problem: self._failed(at[0], f"failed in {action} ({problem})"), (RunFailed,)):
            try:
                with self._watchdog.watching(self._simulators.timeout):
                    yield at
            except Hung as error:
                problem = f"did not return from {action} for {self._simulators.timeout:g} s"
                raise self._failed(at[0], problem) from error

    def _refuse_non_finite(self, values: NDArray[Any], what: str) -> None:
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        row = int(np.argwhere(~np.isfinite(values))[0, 0])
        wrong = values[row][~np.isfinite(values[row])][0]
        raise self._failed(row, f"{what} is {wrong} after {self._steps:,} steps; it must be a finite number")

    def _failed(self, row: int, problem: str) -> RunFailed:
        number = self._simulators.number(row)
        return RunFailed(f"environment {number}: {problem}; {REMEDY}")


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


def _fill(row: NDArray[Any], values: Observation) -> None:
    row[: len(values)] = values
