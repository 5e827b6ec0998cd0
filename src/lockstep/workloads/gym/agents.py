"""PettingZoo's parallel environments as a problem to learn: several agents each. E: environments, A: agents."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from lockstep.envs.hosted_team_env import HostedTeamEnv
from lockstep.envs.hosting import Simulators, Sizes
from lockstep.envs.worker_pool import WorkerPool
from lockstep.rl.problem import TeamProblem
from lockstep.workloads.gym.agents_facts import AgentsFacts, agents_facts
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single_facts import LONGEST_TEST

_OPENER = "lockstep.envs.parallel_simulation:open_simulation"
_NO_LIMIT = 2**62
"""The environment's own time limit ends its episodes."""
# Simulators run on the CPU; the algorithm moves what it needs to its own device.
_HOST = torch.device("cpu")


class AgentsEnv(HostedTeamEnv):
    """Parallel environments of several agents each."""

    def __init__(
        self,
        facts: AgentsFacts,
        index: Tensor,
        seed: int,
        workers: int = 1,
        stage: WorkerPool | None = None,
        team_reward: bool = False,
        timeout: float = 300.0,
        limit: int = _NO_LIMIT,
    ) -> None:
        """`index` (E,): each environment's number over the whole run. `stage`: a pool that can render.

        `limit`: steps after which episodes are truncated, besides the environment's own limit.
        """
        count, size = len(index), facts.agents * facts.rows.each.size
        dtype = np.dtype(facts.rows.each.dtype).name
        super().__init__(
            Simulators(
                _OPENER,
                (facts.spec.to_json(),) * count,
                (facts.rows.action_size,) * count,
                Sizes(size, facts.rows.action_size, dtype, facts.agents),
                timeout=timeout,
            ),
            [limit] * count,
            index,
            seed,
            _HOST,
            team_reward=team_reward,
            workers=workers,
            stage=stage,
            state_size=facts.state_size,
            shape=facts.observation_shape,
            restarts=facts.restarts,
        )


def agents_problem(settings: GymSettings) -> TeamProblem:
    """The environments of the settings; starts no worker yet."""
    facts = agents_facts(settings)

    def environments(index: Tensor, seed: int, team_reward: bool = False, limit: int = _NO_LIMIT) -> AgentsEnv:
        workers = settings.env_workers or torch.get_num_threads()
        return AgentsEnv(
            facts, index, seed, workers, team_reward=team_reward, timeout=settings.env_timeout, limit=limit
        )

    return TeamProblem(
        name="gym",
        observation_shape=facts.observation_shape,
        actions=facts.rows.actions,
        make_env=environments,
        # An episode's return is the sum of all agents' rewards, also in free-for-all games.
        make_test=partial(environments, team_reward=True, limit=_NO_LIMIT if facts.time_limit else LONGEST_TEST),
        image_bytes=facts.images,
        ragged=True,
        hosted=True,
        batch_invariant=True,
        restarts=facts.restarts,
    )
