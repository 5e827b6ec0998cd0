"""Random actions, as a baseline for any environment. E: environments."""

import torch
from torch import Tensor

from lockstep.envs.spaces import Actions, Part
from lockstep.envs.vector_env import BatchedEnv
from lockstep.rl.env_check import random_actions


class RandomActions:
    """A policy that draws actions uniformly, by the position in the batch and the step."""

    def __init__(self, actions: Actions, seed: int, parts: tuple[Part, ...] = ()) -> None:
        """`parts`: of an observation, among which may be the mask of allowed actions."""
        self._actions, self._parts, self._seed, self._step = actions, parts, seed, 0

    def __call__(self, observation: Tensor, env: BatchedEnv) -> Tensor:
        """One action for every environment."""
        self._step += 1
        index = torch.arange(env.count, device=observation.device)
        return random_actions(self._actions, self._parts, observation, index, self._step, self._seed)
