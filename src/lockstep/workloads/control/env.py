"""Control tasks as a batch of environments. E: environments, O: size of an observation, A: size of an action."""

from functools import cache
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.envs import hosting
from lockstep.envs.hosted_env import HostedEnv
from lockstep.envs.hosting import Simulators, Sizes
from lockstep.envs.rendering import open_stage
from lockstep.envs.worker_pool import WorkerPool
from lockstep.errors import UserError
from lockstep.workloads.control import names
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.settings import ControlSettings

_OPENER = "lockstep.workloads.control.simulators:open_simulation"
_SHARED_STATE = 512
"""Values saved per simulation in a multi-task run: more than any suite task needs."""


def task_facts(settings: ControlSettings) -> TaskFacts:
    """Sizes and lengths of the tasks; starts no simulator. UserError if a task's package is not installed."""
    names.check_installed(settings.task)
    return stored_facts(settings)


def stored_facts(settings: ControlSettings) -> TaskFacts:
    """Like `task_facts`, for reading stored episodes: the simulator's package need not be installed."""
    tasks = settings.tasks
    sizes = [_own_facts(task) for task in tasks]
    return TaskFacts(
        tasks,
        obs_dims=tuple(prod(names.IMAGE) if settings.images else size[0] for size in sizes),
        action_dims=tuple(size[1] for size in sizes),
        episode_lengths=tuple(settings.episode_length or size[2] for size in sizes),
        episodic=any(names.gymnasium_id(task) for task in tasks),
        renderer=settings.renderer if settings.images else "",
    )


def make_env(settings: ControlSettings, index: Tensor, seed: int, device: torch.device) -> "ControlEnv":
    """The environments with these global numbers (E,); their results are tensors on `device`."""
    facts = task_facts(settings)
    # By default a worker per thread that the rank may use, so that ranks on one machine do not compete.
    workers = settings.env_workers or torch.get_num_threads()
    stage = _shared_stage(settings.task) if facts.renderer == "mujoco" else None
    return ControlEnv(facts, index, seed, device, workers, stage)


@cache
def _shared_stage(task: str) -> WorkerPool:
    """The workers that draw all image observations of this process; UserError if there is no OpenGL."""
    facts = task_facts(ControlSettings(task=task, obs="rgb"))
    first, host = torch.tensor([0]), torch.device("cpu")
    try:
        return open_stage(lambda pool: ControlEnv(facts, first, 0, host, stage=pool), "obs rgb")
    except UserError as error:
        raise UserError(f"{error}; or choose renderer rays, which needs no OpenGL") from error


def _own_facts(task: str) -> tuple[int, int, int]:
    # From tables: a simulator is slow to start and may not be installed.
    if task in names.SUITE:
        return (*names.SUITE[task], names.SUITE_LENGTH)
    if task in names.MT50:
        return names.METAWORLD_FACTS
    # Imported late: only Gymnasium's own tasks need the package.
    from lockstep.workloads.control.gymnasium_tasks import facts

    return facts(task)


class ControlEnv(HostedEnv):
    """A `ContinuousEnv` of tasks: observation (E, O) float32 or (E, *IMAGE) uint8, action (E, A) from -1 to 1.

    If there are several tasks, environment number i has task i modulo their number.
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
        """`index` (E,): each environment's number over the whole run. `workers`: processes to run them in, if over 1.

        `stage`: a separate pool of workers, for environments that are rendered.
        """
        # By global number: an environment has the same task on any number of ranks.
        number = (index.cpu() % len(facts.tasks)).tolist()
        action_dims = tuple(facts.action_dims[i] for i in number)
        drawn = bool(facts.renderer)
        opened = tuple(f"{facts.renderer}@{facts.tasks[i]}" if drawn else facts.tasks[i] for i in number)
        sizes = Sizes(facts.obs_dim, facts.action_dim, "uint8" if drawn else "float32")
        simulators = Simulators(_OPENER, opened, action_dims, sizes)
        limits = [facts.episode_lengths[i] for i in number]
        super().__init__(
            simulators,
            limits,
            index,
            seed,
            device,
            workers=workers,
            stage=stage,
            state_size=_state_size(facts),
            shape=names.IMAGE if drawn else (),
        )
        self.facts = facts
        self.task = torch.tensor(number, device=device)
        """(E,) the number of each environment's task."""
        columns = torch.arange(facts.action_dim)
        self.action_mask = (columns < torch.tensor(action_dims)[:, None]).float().to(device)
        """(E, A) 1 where the task has such an action, else 0."""
        self._number = np.array(number)
        self._by_success = np.array([facts.tasks[i] in names.MT50 for i in number])
        """(E,) whether a task is scored by success rather than return, as Meta-World's are."""

    def _info(self, results: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
        """Success if a task has a goal, and score and task if there are several: (E,) each."""
        success = results[:, hosting.SUCCESS].astype(np.float64)
        info: dict[str, NDArray[np.generic]] = {"success": success} if self.facts.has_goals else {}
        if self.facts.multitask:
            # Both from 0 to 100: percent of successes, or a tenth of a return of at most 1000.
            info |= {"score": np.where(self._by_success, 100 * success, self._earned / 10), "task": self._number}
        return info


def _state_size(facts: TaskFacts) -> int:
    """Minimum number of values saved per simulation."""
    # Simulators without a state to save are restored by replaying the episode: room for all of its actions.
    replayed = any(task not in names.SUITE for task in facts.tasks)
    replay_size = facts.episode_length * facts.action_dim if replayed else 0
    # Checkpoints need one size on all ranks, whichever tasks a rank has and however far its episodes are.
    return max(replay_size, _SHARED_STATE) if facts.multitask else replay_size
