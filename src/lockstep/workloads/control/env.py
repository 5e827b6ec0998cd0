"""Tasks as a batch of environments. E: environments, O: numbers in an observation, A: in an action."""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.core import random
from lockstep.parts.vector_env import Transition
from lockstep.workloads.control import hosting, names
from lockstep.workloads.control.hosting import Host, Sizes
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.simulation import State


class TaskChoice(Protocol):
    """What of a configuration the environments depend on."""

    task: str
    """A task or a task set."""
    episode_length: int
    """Agent steps after which an episode is cut; 0 = the task's own."""


def task_facts(config: TaskChoice) -> TaskFacts:
    """What the tasks of a configuration look like; starts nothing."""
    tasks = names.tasks_of(config.task)
    sizes = [_own_facts(task) for task in tasks]
    return TaskFacts(
        tasks,
        tuple(size[0] for size in sizes),
        tuple(size[1] for size in sizes),
        tuple(config.episode_length or size[2] for size in sizes),
    )


def make_env(config: TaskChoice, index: Tensor, seed: int, device: torch.device) -> "ControlEnv":
    """The environments with these numbers (E,) over the whole run."""
    return ControlEnv(task_facts(config), index, seed, device)


def _own_facts(task: str) -> tuple[int, int, int]:
    return (*names.SUITE[task], names.SUITE_LENGTH)


class ControlEnv:
    """A `VectorEnv` of tasks: observation (E, O) float32, action (E, A) from -1 to 1.

    Where there are several tasks, environment number i plays task i modulo their number.
    """

    def __init__(self, facts: TaskFacts, index: Tensor, seed: int, device: torch.device) -> None:
        self.facts, self.seed, self.device = facts, seed, device
        self.count = len(index)
        self.observation_shape = (facts.obs_dim,)
        self.action_dim = facts.action_dim
        self._index = index.cpu()
        number = (self._index % len(facts.tasks)).tolist()
        self.task = torch.tensor(number, device=device)
        """(E,) the number of each environment's task."""
        self._action_dims = [facts.action_dims[i] for i in number]
        columns = torch.arange(facts.action_dim)
        self.action_mask = (columns < torch.tensor(self._action_dims)[:, None]).float().to(device)
        """(E, A) 1 where the task has such an action, else 0."""
        self._limits = np.array([facts.episode_lengths[i] for i in number])
        self._host = Host([facts.tasks[i] for i in number], self._action_dims, Sizes(facts.obs_dim, facts.action_dim))
        self._episode = np.full(self.count, -1)
        self._steps = np.zeros(self.count, np.int64)
        self._earned = np.zeros(self.count)
        self._observation = np.zeros((self.count, facts.obs_dim), np.float32)

    def reset(self) -> Tensor:
        """Start the next episode everywhere; returns the (E, O) observation."""
        self._episode += 1
        self._steps[:] = 0
        self._earned[:] = 0
        self._observation = self._host.reset(self._seeds(self._episode))
        return torch.from_numpy(self._observation).to(self.device, copy=True)

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action (E, A)."""
        last = self._steps + 1 >= self._limits
        actions = action.detach().to("cpu", torch.float32).numpy()
        table = self._host.step(actions, self._seeds(self._episode + 1), last)
        results = table[:, 2 * self.facts.obs_dim :]
        self._observation = table[:, : self.facts.obs_dim]
        self._steps += 1
        self._earned += results[:, hosting.REWARD]
        info = self._info(results)
        ended = (results[:, hosting.TERMINATED] + results[:, hosting.TRUNCATED]) > 0
        self._episode[ended] += 1
        self._steps[ended] = 0
        self._earned[ended] = 0
        return self._transition(torch.from_numpy(table).to(self.device), info)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, each tensor with E first."""
        return {
            "episode": torch.from_numpy(self._episode.copy()),
            "steps": torch.from_numpy(self._steps.copy()),
            "earned": torch.from_numpy(self._earned.copy()),
            "observation": torch.from_numpy(self._observation.copy()),
            "simulation": torch.from_numpy(_as_table(self._host.save())),
        }

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Take up a state from `state`; returns the observation to act on."""
        parts = {name: value.cpu().numpy().copy() for name, value in state.items()}
        self._episode, self._steps, self._earned = parts["episode"], parts["steps"], parts["earned"]
        self._observation = parts["observation"]
        self._host.restore(self._seeds(self._episode), _as_rows(parts["simulation"]))
        return torch.from_numpy(self._observation).to(self.device, copy=True)

    def _seeds(self, episode: NDArray[np.int64]) -> NDArray[np.uint32]:
        """(E,) each environment's seed for an episode: by its number over the whole run, whoever has it."""
        return random.words(self.seed, "episode", self._index, torch.from_numpy(episode))[0].numpy().astype(np.uint32)

    def _info(self, results: NDArray[np.float32]) -> dict[str, Tensor]:
        return {}

    def _transition(self, table: Tensor, info: dict[str, Tensor]) -> Transition:
        width = self.facts.obs_dim
        results = table[:, 2 * width :]
        return Transition(
            observation=table[:, :width],
            reward=results[:, hosting.REWARD],
            terminated=results[:, hosting.TERMINATED] > 0,
            truncated=results[:, hosting.TRUNCATED] > 0,
            final_observation=table[:, width : 2 * width],
            info=info,
        )


def _as_table(states: list[State]) -> Any:
    """(E, 1 + S) states of different lengths, each behind its length, filled up with zeros."""
    table = np.zeros((len(states), 1 + max(map(len, states))))
    for row, state in zip(table, states, strict=True):
        row[0] = len(state)
        row[1 : 1 + len(state)] = state
    return table


def _as_rows(table: Any) -> list[State]:
    return [row[1 : 1 + int(row[0])] for row in table]
