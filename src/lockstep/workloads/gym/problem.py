"""Environments from outside as a problem to learn. E: environments."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.compute import random
from lockstep.distributed.world import World
from lockstep.envs import hosting
from lockstep.envs.gym_spaces import Continuous, Discrete
from lockstep.envs.hosted_env import HostedEnv
from lockstep.envs.hosting import Simulators, Sizes
from lockstep.envs.spaces import Actions
from lockstep.envs.vector_env import BatchedEnv
from lockstep.envs.worker_pool import WorkerPool
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import HOSTED_AT_ONCE, evaluate
from lockstep.rl.problem import EnvProblem, Tasks
from lockstep.workloads.gym.facts import Facts, facts_of
from lockstep.workloads.gym.settings import GymSettings

_OPENER = "lockstep.envs.gym_simulation:open_simulation"
_NO_LIMIT = 2**62
"""The environment's own time limit ends its episodes."""
_USUAL_LENGTH = 1000
"""Assumed steps of an episode if nothing limits it; TD-MPC2 computes its discount from it."""
# Simulators run on the CPU; the algorithm moves what it needs to its own device.
_HOST = torch.device("cpu")


class GymEnv(HostedEnv):
    """Gymnasium environments with one agent each."""

    def __init__(
        self, facts: Facts, index: Tensor, seed: int, workers: int = 1, stage: WorkerPool | None = None
    ) -> None:
        """`index` (E,): each environment's number over the whole run. `stage`: a pool that can render."""
        count, rows = len(index), facts.rows
        dtype = np.dtype(facts.observations.dtype).name
        super().__init__(
            Simulators(
                _OPENER,
                (facts.spec.to_json(),) * count,
                (rows.size,) * count,
                Sizes(facts.observations.size, rows.size, dtype),
            ),
            [_NO_LIMIT] * count,
            index,
            seed,
            _HOST,
            workers=workers,
            stage=stage,
            state_size=facts.state_size,
            shape=facts.observations.shape,
        )
        self._restarts = facts.resume_by == "restart"

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned; environments that cannot be restored start their next episode."""
        if not self._restarts:
            return super().load(state)
        self._episode = state["episode"].cpu().numpy().copy()
        return self.reset()

    def _info(self, results: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
        # Reported by environments with a goal only; an all-zero column would look like failure.
        success = results[:, hosting.SUCCESS].astype(np.float64)
        return {"success": success} if success.any() or self._has_goal else {}

    _has_goal = False


def gym_problem(settings: GymSettings) -> EnvProblem:
    """The environments of the settings; starts no worker yet."""
    facts = facts_of(settings)

    def environments(index: Tensor, seed: int) -> GymEnv:
        return GymEnv(facts, index, seed, settings.env_workers or torch.get_num_threads())

    actions = facts.actions
    tasks = None
    if isinstance(actions, Continuous):
        tasks = Tasks((actions.size,), (facts.time_limit or _USUAL_LENGTH,), terminates=True)
    return EnvProblem(
        name="gym",
        observation_shape=facts.observations.shape,
        actions=actions,
        make_env=environments,
        parts=facts.observations.parts,
        hosted=True,
        restarts=facts.resume_by == "restart",
        tasks=tasks,
    )


def evaluate_random(settings: GymSettings, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate actions that are drawn at random. Called by every rank."""
    problem = gym_problem(settings)
    return evaluate(
        world,
        lambda index: problem.environments(index, seed),
        RandomActions(problem.actions, seed),
        episodes,
        seed,
        tag="gym",
        at_once=HOSTED_AT_ONCE,
    )


class RandomActions:
    """A policy that draws actions uniformly, by the environments' numbers and the step."""

    def __init__(self, actions: Actions, seed: int) -> None:
        self._actions, self._seed, self._step = actions, seed, 0

    def __call__(self, observation: Tensor, env: BatchedEnv) -> Tensor:
        """One action for every environment."""
        self._step += 1
        assert isinstance(env, HostedEnv)
        index, known = env.index, self._actions
        if isinstance(known, Discrete):
            return (random.uniform(self._seed, "random policy", index, self._step) * known.count).long()
        size = known.size if isinstance(known, Continuous) else len(known.counts)
        drawn = random.uniform(self._seed, "random policy", index[:, None], self._step, torch.arange(size))
        if isinstance(known, Continuous):
            return drawn * 2 - 1
        return (drawn * torch.tensor(known.counts)).long()
