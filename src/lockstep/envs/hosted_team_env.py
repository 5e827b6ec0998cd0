"""Simulations of several agents each, on the host, as a batch of environments. E: environments, A: agents."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lockstep.envs import hosting
from lockstep.envs.hosted_env import HostedEnv
from lockstep.envs.hosting import Table
from lockstep.envs.vector_env import Transition


class HostedTeamEnv(HostedEnv):
    """A `TeamEnv` of simulations: observation (E, A, ...), reward (E, A), or (E,) with `team_reward`.

    Agents may leave before an episode's end, and episodes may be truncated: see `TeamEnv`.
    """

    def __init__(self, *arguments: Any, team_reward: bool, **options: Any) -> None:
        """The first and the last ones as for `HostedEnv`."""
        super().__init__(*arguments, **options)
        self._team_reward = team_reward

    def prepare(self, steps: int) -> dict[str, float]:
        """Nothing changes in the course of a run."""
        return {}

    def _transition(self, table: Table, info: dict[str, Tensor]) -> Transition:
        whole = super()._transition(table, info)
        if self._team_reward:
            return whole
        parts = torch.from_numpy(table["agents"])
        return replace(
            whole,
            reward=parts[:, hosting.AGENT_REWARD],
            terminated=parts[:, hosting.AGENT_TERMINATED] > 0,
            truncated=parts[:, hosting.AGENT_TRUNCATED] > 0,
            valid=parts[:, hosting.ACTED] > 0,
        )
