"""Gymnasium environments with one agent each, as a problem to learn. E: environments."""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.envs import hosting
from lockstep.envs.gym_spaces import Continuous
from lockstep.envs.hosted_env import HostedEnv
from lockstep.envs.hosting import Simulators, Sizes
from lockstep.envs.worker_pool import WorkerPool
from lockstep.launch import given
from lockstep.rl.problem import EnvProblem, Tasks
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single_facts import LONGEST_TEST, Facts, facts_of

_OPENER = "lockstep.envs.gym_simulation:open_simulation"
_NO_LIMIT = 2**62
"""The environment's own time limit ends its episodes."""
_USUAL_LENGTH = 1000
"""Assumed steps of an episode if nothing limits it; TD-MPC2 computes its discount from it."""
_ROUND_TRIP = 4e-4
"""Seconds that asking workers for a step costs, about: what they save must be more."""
# Simulators run on the CPU; the algorithm moves what it needs to its own device.
_HOST = torch.device("cpu")


class GymEnv(HostedEnv):
    """Gymnasium environments with one agent each."""

    def __init__(
        self,
        facts: Facts,
        index: Tensor,
        seed: int,
        workers: int = 1,
        stage: WorkerPool | None = None,
        timeout: float = 300.0,
        limit: int = _NO_LIMIT,
    ) -> None:
        """`index` (E,): each environment's number over the whole run. `stage`: a pool that can render.

        `limit`: steps after which episodes are truncated, besides the environment's own limit.
        """
        count, rows = len(index), facts.rows
        dtype = np.dtype(facts.observations.dtype).name
        super().__init__(
            Simulators(
                _OPENER,
                (facts.spec.to_json(),) * count,
                (rows.size,) * count,
                Sizes(facts.observations.size, rows.size, dtype),
                timeout=timeout,
            ),
            [limit] * count,
            index,
            seed,
            _HOST,
            workers=workers,
            stage=stage,
            state_size=facts.state_size,
            shape=facts.observations.shape,
            restarts=facts.restarts,
        )
        self._has_goal = facts.has_goal

    def _info(self, results: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
        # Reported by environments with a goal only; zeros for the others would look like failure.
        return {"success": results[:, hosting.SUCCESS].astype(np.float64)} if self._has_goal else {}


def workers_for(settings: GymSettings, facts: Facts, count: int) -> int:
    """How many processes run `count` environments; what they compute does not depend on it."""
    workers = settings.env_workers or torch.get_num_threads()
    if workers > 1:
        given.refuse_unsendable(settings.env_id)
    if settings.env_workers or workers == 1:
        return workers
    saved = count * facts.step_seconds * (1 - 1 / workers)
    return workers if saved > _ROUND_TRIP else 1


def single_problem(settings: GymSettings) -> EnvProblem:
    """The environments of the settings; starts no worker yet."""
    facts = facts_of(settings)

    def environments(index: Tensor, seed: int, limit: int = _NO_LIMIT) -> GymEnv:
        workers = workers_for(settings, facts, len(index))
        return GymEnv(facts, index, seed, workers, timeout=settings.env_timeout, limit=limit)

    actions = facts.actions
    tasks = None
    if isinstance(actions, Continuous):
        tasks = Tasks((actions.size,), (facts.time_limit or _USUAL_LENGTH,), terminates=True)
    return EnvProblem(
        name="gym",
        observation_shape=facts.observations.shape,
        actions=actions,
        make_env=environments,
        make_test=None if facts.time_limit else partial(environments, limit=LONGEST_TEST),
        parts=facts.observations.parts,
        image_bytes=facts.observations.dtype == np.uint8,
        hosted=True,
        batch_invariant=True,
        restarts=facts.restarts,
        tasks=tasks,
    )
