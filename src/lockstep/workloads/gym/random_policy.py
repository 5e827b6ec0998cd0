"""Random actions, as a baseline for any environment. E: environments."""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.envs.spaces import Actions, Continuous, Discrete
from lockstep.envs.vector_env import BatchedEnv


class RandomActions:
    """A policy that draws actions uniformly, by the position in the batch and the step."""

    def __init__(self, actions: Actions, seed: int) -> None:
        self._actions, self._seed, self._step = actions, seed, 0

    def __call__(self, observation: Tensor, env: BatchedEnv) -> Tensor:
        """One action for every environment."""
        self._step += 1
        # The position in the batch stands for the environment: nothing here has to be the same on other ranks.
        index, known = torch.arange(env.count, device=observation.device), self._actions
        if isinstance(known, Discrete):
            return (random.uniform(self._seed, "random policy", index, self._step) * known.count).long()
        size = known.size if isinstance(known, Continuous) else len(known.counts)
        drawn = random.uniform(
            self._seed, "random policy", index[:, None], self._step, torch.arange(size, device=index.device)
        )
        if isinstance(known, Continuous):
            return drawn * 2 - 1
        return (drawn * torch.tensor(known.counts, device=index.device)).long()
