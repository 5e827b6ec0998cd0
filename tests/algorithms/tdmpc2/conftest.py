"""A task small enough to reason about: a point, pushed by its action, is rewarded for being near the origin."""

import pytest
import torch

from lockstep.algorithms.tdmpc2.algorithm import TDMPC2
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.world_model import WorldModelSettings
from lockstep.compute import random
from lockstep.config.config import Layout
from lockstep.distributed.world import World
from lockstep.envs.vector_env import Transition
from lockstep.rl.problem import Continuous, EnvProblem, Tasks

LENGTH = 20
LAYOUT = Layout(TDMPC2Settings, network=WorldModelSettings)


class Point:
    """Points in the plane; with `ends`, an episode terminates when its point is far from the origin."""

    def __init__(self, index, seed, ends=False, tasks=1):
        self.index, self.seed, self.ends = index, seed, ends
        self.count, self.observation_shape, self.action_dim = len(index), (4,), 2
        self.task = index % tasks
        self.place, self.speed = torch.zeros(len(index), 2), torch.zeros(len(index), 2)
        self.age = torch.zeros(len(index), dtype=torch.int64)
        self.episode = torch.zeros(len(index), dtype=torch.int64)
        self.actions = []

    @property
    def steps(self):
        return self.age

    def begin(self, where):
        uniform = random.uniform(self.seed, "start", self.index[:, None], self.episode[:, None], torch.arange(2))
        self.place = torch.where(where[:, None], 2 * uniform - 1, self.place)
        self.speed = torch.where(where[:, None], 0.0, self.speed)
        self.age = torch.where(where, 0, self.age)
        self.episode = self.episode + where

    def observe(self):
        return torch.cat((self.place, self.speed), 1)

    def reset(self):
        self.begin(torch.ones(self.count, dtype=torch.bool))
        return self.observe()

    def step(self, action):
        assert action.shape == (self.count, 2) and action.device.type == "cpu" and bool((action.abs() <= 1).all())
        self.actions.append(action.clone())
        # The second task is the first with the sign of its action flipped.
        push = torch.where(self.task[:, None] == 1, -action, action)
        self.speed = 0.8 * self.speed + 0.2 * push
        self.place = self.place + self.speed
        self.age = self.age + 1
        reward = torch.exp(-self.place.square().sum(1))
        terminated = (self.place.abs() > 2).any(1) & self.ends
        truncated = (self.age >= LENGTH) & ~terminated
        final, info = self.observe(), {"age": self.age.float()}
        self.begin(terminated | truncated)
        return Transition(self.observe(), reward, terminated, truncated, final, info)

    def state(self):
        return {name: getattr(self, name) for name in ("place", "speed", "age", "episode")}

    def load(self, state):
        for name, value in state.items():
            setattr(self, name, value.clone())
        return self.observe()


def _config(**changes):
    defaults = {
        "steps": 8 * 10 * 50,
        "num_envs": 8,
        "n_steps": 10,
        "seed_steps": 80,
        "pretrain_updates": 4,
        "updates_per_step": 1 / 8,
        "batch_size": 32,
        "buffer_size": 4000,
        "enc_dim": 16,
        "mlp_dim": 32,
        "latent_dim": 16,
        "num_q": 3,
        "num_samples": 16,
        "num_elites": 4,
        "num_pi_trajs": 4,
        "iterations": 2,
    }
    return LAYOUT.config({**defaults, **changes})


def _learner(world=None, ends=False, tasks=1, actions=None, **changes):
    config = _config(**changes)
    world = (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu"))
    made = []

    def make_env(index, seed):
        made.append(Point(index, seed, ends, tasks))
        return made[-1]

    problem = EnvProblem(
        name="point",
        observation_shape=(4,),
        actions=Continuous(2),
        make_env=make_env,
        hosted=True,
        tasks=Tasks(actions or (2,) * tasks, (LENGTH,) * tasks, terminates=ends),
    )
    learner = TDMPC2().build(config, world, problem)
    learner.made = made
    return learner


@pytest.fixture
def make_config():
    """A small configuration, with changes."""
    return _config


@pytest.fixture
def make_learner():
    """A learner of the small task in a world of one, with changes to its configuration."""
    return _learner
