"""Tasks as a batch of environments. E: environments, O: numbers in an observation, A: in an action."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.compute import random
from lockstep.envs.vector_env import Transition
from lockstep.workloads.control import hosting, names
from lockstep.workloads.control.hosting import Host, Sizes
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.worker_pool import RemoteHost, WorkerPool, shared_pool

_SHARED_STATE = 512
"""Numbers kept of a simulation where there are several tasks: more than any of theirs has."""


class TaskChoice(Protocol):
    """What of a configuration the environments depend on."""

    @property
    def task(self) -> str:
        """A task or a task set."""

    @property
    def episode_length(self) -> int:
        """Agent steps after which an episode is cut; 0 = the task's own."""

    @property
    def env_workers(self) -> int:
        """Processes that hold the environments of a rank; 0 = as many as the rank has threads, 1 = the rank itself."""


def task_facts(config: TaskChoice) -> TaskFacts:
    """What the tasks of a configuration look like; starts nothing. UserError where one of them cannot be made."""
    names.check_installed(config.task)
    return stored_facts(config)


def stored_facts(config: TaskChoice) -> TaskFacts:
    """The same for who only reads stored episodes: the package that simulates a task need not be there."""
    tasks = names.tasks_of(config.task)
    sizes = [_own_facts(task) for task in tasks]
    return TaskFacts(
        tasks,
        obs_dims=tuple(size[0] for size in sizes),
        action_dims=tuple(size[1] for size in sizes),
        episode_lengths=tuple(config.episode_length or size[2] for size in sizes),
        episodic=any(names.gymnasium_id(task) for task in tasks),
    )


def make_env(config: TaskChoice, index: Tensor, seed: int, device: torch.device) -> "ControlEnv":
    """The environments with these numbers (E,) over the whole run; what they answer lies on the device."""
    return ControlEnv(task_facts(config), index, seed, device, config.env_workers or torch.get_num_threads())


def _own_facts(task: str) -> tuple[int, int, int]:
    if task in names.SUITE:
        return (*names.SUITE[task], names.SUITE_LENGTH)
    if task in names.MT50:
        return names.METAWORLD_FACTS
    from lockstep.workloads.control.gymnasium_tasks import facts

    return facts(task)


class ControlEnv:
    """A `ContinuousEnv` of tasks: observation (E, O) float32, action (E, A) from -1 to 1.

    Where there are several tasks, environment number i has task i modulo their number.
    """

    def __init__(
        self,
        facts: TaskFacts,
        index: Tensor,
        seed: int,
        device: torch.device,
        workers: int = 1,
        stage: WorkerPool | None = None,
    ) -> None:
        """`index` (E,): each environment's number over the whole run. `workers`: processes to hold them, if over 1.

        `stage`: workers of its own, for environments that are looked at.
        """
        self.facts, self.seed, self.device = facts, seed, device
        self.count = len(index)
        self.observation_shape = (facts.obs_dim,)
        self.action_dim = facts.action_dim
        self.index = index.cpu()
        """(E,) numbers over the whole run, on the host."""
        number = (self.index % len(facts.tasks)).tolist()
        self.task = torch.tensor(number, device=device)
        """(E,) the number of each environment's task."""
        action_dims = [facts.action_dims[i] for i in number]
        columns = torch.arange(facts.action_dim)
        self.action_mask = (columns < torch.tensor(action_dims)[:, None]).float().to(device)
        """(E, A) 1 where the task has such an action, else 0."""
        self._number = np.array(number)
        self._by_success = np.array([facts.tasks[i] in names.MT50 for i in number])
        """(E,) whether a task's score is its success instead of its return."""
        replayed = any(task not in names.SUITE for task in facts.tasks)
        own = facts.episode_length * facts.action_dim if replayed else 0
        # The same on all ranks, whichever tasks they have and however far their episodes have got.
        self._state_size = max(own, _SHARED_STATE) if facts.multitask else own
        self._limits = np.array([facts.episode_lengths[i] for i in number])
        self._host = _host([facts.tasks[i] for i in number], action_dims, facts, workers, stage)
        self._episode = np.full(self.count, -1)
        self._steps = np.zeros(self.count, np.int64)
        self._earned = np.zeros(self.count)
        self._observation = np.zeros((self.count, facts.obs_dim), np.float32)
        self._coming = np.zeros(self.count, np.uint32)
        """(E,) seeds of the episodes after the present ones."""

    @property
    def episode(self) -> Tensor:
        """(E,) the number of each environment's present episode, on the host."""
        return torch.from_numpy(self._episode.copy())

    @property
    def steps(self) -> Tensor:
        """(E,) steps that each episode has so far, on the host; 0 where the next action is its first."""
        return torch.from_numpy(self._steps.copy())

    def reset(self) -> Tensor:
        """Start the next episode everywhere; returns the (E, O) observation."""
        self._begin(np.ones(self.count, np.bool_))
        self._observation = self._host.reset(self._seeds(self._episode))
        return torch.from_numpy(self._observation.copy()).to(self.device)

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action (E, A)."""
        last = self._steps + 1 >= self._limits
        table = self._host.step(action.detach().to("cpu", torch.float32).numpy(), self._coming, last)
        width = self.facts.obs_dim
        results = table[:, 2 * width :]
        self._observation = table[:, :width].copy()
        self._steps += 1
        self._earned += results[:, hosting.REWARD]
        info = self._info(results)
        ended = results[:, hosting.TERMINATED] + results[:, hosting.TRUNCATED] > 0
        if ended.any():
            self._begin(ended)
        sent = torch.from_numpy(table).to(self.device)
        return Transition(
            observation=sent[:, :width],
            reward=sent[:, 2 * width + hosting.REWARD],
            terminated=sent[:, 2 * width + hosting.TERMINATED] > 0,
            truncated=sent[:, 2 * width + hosting.TRUNCATED] > 0,
            final_observation=sent[:, width : 2 * width],
            info=info,
        )

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, each tensor with E first."""
        parts = {
            "episode": self._episode,
            "steps": self._steps,
            "earned": self._earned,
            "observation": self._observation,
            "simulation": hosting.packed(self._host.save(), self._state_size),
        }
        return {name: torch.from_numpy(value.copy()) for name, value in parts.items()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Take up a state from `state`; returns the observation to act on."""
        parts = {name: value.cpu().numpy().copy() for name, value in state.items()}
        self._episode, self._steps, self._earned = parts["episode"], parts["steps"], parts["earned"]
        self._coming = self._seeds(self._episode + 1)
        self._host.restore(self._seeds(self._episode), hosting.unpacked(parts["simulation"]))
        self._observation = parts["observation"]
        return torch.from_numpy(self._observation.copy()).to(self.device)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A picture of the first environment, of about that size: (height, width, 3)."""
        return self._host.render(height, width)

    def _begin(self, where: NDArray[np.bool_]) -> None:
        """Count the next episode of some environments."""
        self._episode[where] += 1
        self._steps[where] = 0
        self._earned[where] = 0
        self._coming = self._seeds(self._episode + 1)

    def _seeds(self, episode: NDArray[np.int64]) -> NDArray[np.uint32]:
        """(E,) each environment's seed for an episode: by its number over the whole run, whoever has it."""
        return random.words(self.seed, "episode", self.index, torch.from_numpy(episode))[0].numpy().astype(np.uint32)

    def _info(self, results: NDArray[np.float32]) -> dict[str, Tensor]:
        """What there is to say about episodes besides their returns: (E,) each, on the host."""
        success = results[:, hosting.SUCCESS].astype(np.float64)
        info = {"success": success} if self.facts.has_goals else {}
        if self.facts.multitask:
            info |= {"score": np.where(self._by_success, 100 * success, self._earned / 10), "task": self._number}
        return {name: torch.from_numpy(value.copy()).to(self.device) for name, value in info.items()}


def _host(
    tasks: list[str], action_dims: list[int], facts: TaskFacts, workers: int, stage: WorkerPool | None
) -> Host | RemoteHost:
    """Where the environments are: in this process, or in others."""
    sizes, workers = Sizes(facts.obs_dim, facts.action_dim), min(workers, len(tasks))
    if stage is None and workers == 1:
        return Host(tasks, action_dims, sizes)
    return (stage or shared_pool()).host(workers, tasks, action_dims, sizes)
