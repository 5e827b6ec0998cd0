"""Thousands of environments as tensors on the device: a ball that is pushed to the middle of a table.

python tensor_env.py             or, without Python:  lockstep train tensor_env:Table --n-envs 4096
"""

import torch

import lockstep
from lockstep.compute import random


class Table:
    """E tables. `index` (E,): their numbers over the whole run, which decide their random numbers."""

    observation_shape = (4,)
    action_dim = 2  # a push, each component from -1 to 1; `action_count` would say discrete actions

    def __init__(self, index: torch.Tensor, seed: int) -> None:
        self.index, self.seed = index, seed
        self.place, self.speed = (torch.zeros(len(index), 2, device=index.device) for _ in range(2))
        self.steps, self.episode = torch.zeros_like(index), torch.zeros_like(index)

    def reset(self) -> torch.Tensor:
        """Start every episode; returns the observation (E, 4)."""
        self._begin(torch.ones_like(self.index, dtype=torch.bool))
        return self._seen()

    def step(self, action: torch.Tensor):
        """Push; an episode that ends begins anew in the same step. Returns five tensors."""
        self.speed.mul_(0.9).add_(0.1 * action)
        self.place += 0.1 * self.speed
        self.steps += 1
        reward = -self.place.norm(dim=1)
        terminated = reward > -0.02
        truncated = (self.steps >= 100) & ~terminated
        final = self._seen()
        self._begin(terminated | truncated)
        return self._seen(), reward + 10.0 * terminated, terminated, truncated, final

    def state(self) -> dict[str, torch.Tensor]:
        """Everything that changes, each tensor with E first: what a checkpoint saves."""
        return {name: getattr(self, name).clone() for name in ("place", "speed", "steps", "episode")}

    def load(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        """Continue from a state; returns the observation to act on."""
        for name, value in state.items():
            getattr(self, name).copy_(value)
        return self._seen()

    def _begin(self, where: torch.Tensor) -> None:
        self.episode += where
        # A function of (seed, environment, episode, component): the same on any number of ranks.
        component = torch.arange(2, device=self.index.device)
        start = random.uniform(self.seed, "table", self.index[:, None], self.episode[:, None], component) * 2 - 1
        self.place.copy_(torch.where(where[:, None], start, self.place))
        self.speed.masked_fill_(where[:, None], 0.0)
        self.steps.masked_fill_(where, 0)

    def _seen(self) -> torch.Tensor:
        return torch.cat((self.place, self.speed), dim=1)


if __name__ == "__main__":
    print(lockstep.train(Table, algorithm="ppo", n_envs=4096, batch_size=16_384, total_timesteps=20_000_000))
