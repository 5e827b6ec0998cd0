"""Adapts any batch of environments to what TD-MPC2 expects: host tensors and a step count. E: environments."""

import math

import torch
from torch import Tensor

from lockstep.envs.vector_env import BatchedEnv, Transition

_HOST = torch.device("cpu")


class HostEnv:
    """A `ContinuousEnv` of one task, around environments that do not count their steps or run on a GPU."""

    def __init__(self, env: BatchedEnv, index: Tensor, action_dim: int) -> None:
        """`index` (E,): the environments' numbers in the whole run, on the device that they run on."""
        self._env, self._device = env, index.device
        self.count, self.action_dim = env.count, action_dim
        self.observation_shape = (math.prod(env.observation_shape),)
        self.index = index.cpu()
        self.task = torch.zeros_like(self.index)
        self.steps = torch.zeros_like(self.index)

    def reset(self) -> Tensor:
        """Start a new episode everywhere; returns the observation (E, D)."""
        self.steps.zero_()
        return _flat(self._env.reset()).to(_HOST)

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action (E, A)."""
        done = self._env.step(action.to(self._device)).to(_HOST)
        # Environments reset themselves, so the next step of an ended one is the first of a new episode.
        self.steps = torch.where(done.terminated | done.truncated, 0, self.steps + 1)
        done.observation = _flat(done.observation)
        if done.final_observation is not None:
            done.final_observation = _flat(done.final_observation)
        return done

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume."""
        # Not the step count: only evaluations read it, and they start with new episodes.
        return self._env.state()

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned; returns the observation (E, D)."""
        return _flat(self._env.load({name: value.to(self._device) for name, value in state.items()})).to(_HOST)


def _flat(observation: Tensor) -> Tensor:
    """Observations as the world model expects them: one float32 vector each."""
    return observation.flatten(1).to(torch.float32)
