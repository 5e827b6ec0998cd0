"""A minimal game: every agent observes which action is correct and is rewarded for choosing it."""

import pytest
import torch

from lockstep.algorithms.ddpg.algorithm import DDPG
from lockstep.algorithms.ddpg.settings import DDPGSettings, TeamMLPSettings
from lockstep.compute import random
from lockstep.config.config import Layout
from lockstep.distributed.world import World
from lockstep.envs.spaces import Discrete
from lockstep.envs.vector_env import Transition
from lockstep.rl.problem import TeamProblem

AGENTS, ACTIONS = 2, 4


class Matching:
    """Boards whose episodes last 3, 4, 5 or 6 steps, depending on their index, so that they end at different times."""

    def __init__(self, index, seed, team_reward=False):
        self.index, self.seed, self.team_reward = index, seed, team_reward
        self.count, self.observation_shape, self.action_count = len(index), (AGENTS, ACTIONS + 1), ACTIONS
        self.clock = torch.zeros(len(index), dtype=torch.int64)
        self.age = torch.zeros(len(index), dtype=torch.int64)
        self.prepared = []

    def prepare(self, steps):
        self.prepared.append(steps)
        return {"level": float(steps >= 64)}

    def correct(self):
        words = random.random_words(
            self.seed, "wanted", self.index[:, None], self.clock[:, None], torch.arange(AGENTS)
        )[0]
        return words % ACTIONS

    def observe(self):
        # The last feature identifies the board, so that a misplaced row of the replay buffer is noticed.
        name = self.index[:, None, None].expand(-1, AGENTS, 1).float() / 100
        return torch.cat((torch.nn.functional.one_hot(self.correct(), ACTIONS).float(), name), -1)

    def reset(self):
        self.clock.zero_(), self.age.zero_()
        return self.observe()

    def step(self, action):
        reward = (action == self.correct()).float()
        self.clock += 1
        self.age += 1
        ended = self.age >= 3 + self.index % 4
        info = {"age": self.age.clone()}
        self.age *= ~ended
        reward = reward.sum(1) if self.team_reward else reward
        return Transition(self.observe(), reward, ended, torch.zeros_like(ended), info=info)

    def state(self):
        return {"clock": self.clock, "age": self.age}

    def load(self, state):
        self.clock.copy_(state["clock"]), self.age.copy_(state["age"])
        return self.observe()


def _config(**changes):
    defaults = {
        "n_envs": 16,
        "n_steps": 8,
        "batch_size": 64,
        "buffer_size": 1024,
        "total_timesteps": 128 * 100,
        "a_lr": 3e-3,
        "c_lr": 3e-3,
        "gamma": 0.5,
        "n_step": 1,
        "epsilon_speed": 0.9995,
        "hidden_size": 32,
    }
    return Layout(DDPGSettings, network=TeamMLPSettings).config({**defaults, **changes})


def _learner(world=None, pool=None, pool_update_every=0, **changes):
    config = _config(**changes)
    world = (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu"))
    problem = TeamProblem(
        name="matching",
        observation_shape=(AGENTS, ACTIONS + 1),
        actions=Discrete(ACTIONS),
        make_env=Matching,
        make_test=lambda index, seed: Matching(index, seed, team_reward=True),
        pool_update_every=pool_update_every,
    )
    if pool:
        problem.opponent_pool = pool(config.network.build(problem, config).actor)
    return DDPG().build(config, world, problem)


@pytest.fixture
def matching():
    """The environment."""
    return Matching


@pytest.fixture
def make_config():
    """A small configuration, with changes."""
    return _config


@pytest.fixture
def make_learner():
    """A learner of the minimal game on one rank, with changes to its configuration."""
    return _learner
