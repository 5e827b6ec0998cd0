"""Environments with one agent as a team of one, for algorithms that learn teams. E: environments."""

from dataclasses import replace

import torch
from torch import Tensor

from lockstep.envs.spaces import MultiDiscrete
from lockstep.envs.vector_env import BatchedEnv, Transition
from lockstep.errors import UserError
from lockstep.rl.problem import EnvProblem, TeamProblem


class TeamOfOne:
    """A `TeamEnv` of environments with one agent each, which may be truncated: all tensors get an axis of one agent."""

    def __init__(self, env: BatchedEnv) -> None:
        self._env = env
        self.count = env.count
        self.observation_shape = (1, *env.observation_shape)

    def prepare(self, steps: int) -> dict[str, float]:
        """Nothing changes in the course of a run."""
        return {}

    def reset(self) -> Tensor:
        """Start a new episode everywhere; returns the (E, 1, ...) observation."""
        return self._env.reset().unsqueeze(1)

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action, (E, 1) or (E, 1, K)."""
        done = self._env.step(action.squeeze(1))
        final = done.observation if done.final_observation is None else done.final_observation
        valid = torch.ones_like(done.terminated) if done.valid is None else done.valid
        return replace(
            done,
            observation=done.observation.unsqueeze(1),
            reward=done.reward.unsqueeze(1),
            terminated=done.terminated.unsqueeze(1),
            truncated=done.truncated.unsqueeze(1),
            final_observation=final.unsqueeze(1),
            valid=valid.unsqueeze(1),
        )

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume."""
        return self._env.state()

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned; returns the (E, 1, ...) observation to act on."""
        return self._env.load(state).unsqueeze(1)


def as_team(problem: EnvProblem) -> TeamProblem:
    """The problem for an algorithm that learns teams; UserError if its spaces are more than such algorithms take."""
    if isinstance(problem.actions, MultiDiscrete):
        raise UserError(
            f"{problem.name}: has several discrete actions at once; ddpg takes Discrete actions and a Box of floats: "
            "choose --algorithm ppo"
        )
    for part in problem.parts:
        if part.kind != "vector":
            raise UserError(
                f"{problem.name}: its observations have a part {part.name} ({part.kind}); ddpg takes vectors, or a "
                "single image: choose --algorithm ppo"
            )
    return TeamProblem(
        name=problem.name,
        observation_shape=(1, *problem.observation_shape),
        actions=problem.actions,
        make_env=lambda index, seed: TeamOfOne(problem.environments(index, seed)),
        # Evaluations act by the model alone, which gives its one agent an axis itself.
        make_test=problem.test_environments,
        image_bytes=problem.image_bytes,
        ragged=True,
        hosted=problem.hosted,
        batch_invariant=problem.batch_invariant,
        restarts=problem.restarts,
        alone=True,
    )
