"""PPO as an algorithm: which problems it takes, and that it learns continuous actions on any number of ranks."""

from dataclasses import replace

import pytest
import torch

from lockstep.algorithms.ppo.algorithm import PPO
from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import Layout
from lockstep.distributed.world import World
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.rl.network_settings import MLPSettings
from lockstep.rl.problem import Continuous, EnvProblem, Tasks
from lockstep.storage.checkpoint import weights_hash

CONFIG = Layout(PPOSettings, network=MLPSettings).config(
    {
        "n_envs": 16,
        "n_steps": 16,
        "batch_size": 128,
        "n_epochs": 4,
        "learning_rate": 1e-2,
        "ent_coef": 0.0,
        "gamma": 0.0,
        "initial_log_std": -1.0,
        "mlp_width": 16,
        "total_timesteps": 10_000_000,
        "threads": 1,
        "device": "cpu",
    }
)


class Echo:
    """Shows two numbers of 0.5 or -0.5 and pays for repeating them; every step is an episode."""

    def __init__(self, index, seed):
        self.index, self.count = index, len(index)
        self.time = torch.zeros_like(index)

    def _observation(self):
        bits = torch.stack(((self.index + self.time) % 2, (self.index // 2 + self.time // 2) % 2), dim=1)
        return bits - 0.5

    def reset(self):
        self.time.zero_()
        return self._observation()

    def step(self, action):
        assert action.abs().max() <= 1.0, "an environment is given actions from -1 to 1"
        reward = -(action - self._observation()).square().sum(1)
        self.time += 1
        ended = torch.ones(self.count, dtype=torch.bool)
        return Transition(self._observation(), reward, ended, ~ended)

    def state(self):
        return {"time": self.time.clone()}

    def load(self, state):
        self.time.copy_(state["time"])
        return self._observation()


ECHO = EnvProblem(name="echo", observation_shape=(2,), actions=Continuous(2), make_env=Echo)


def make(world=None, problem=ECHO, **changes):
    config = CONFIG.replace(**changes)
    return PPO().build(config, (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu")), problem)


def test_continuous_actions_are_learned():
    learner = make()
    before = learner.evaluate(16, 3).score()
    for _ in range(20):
        learner.step()
    # Whoever answers 0 loses 0.25 for each number.
    assert before < -0.3 and learner.evaluate(16, 3).score() > -0.02
    # Surer of what to do than at the start.
    assert bool((learner.model.log_std < -1.0).all())


def train(world):
    """A short training; returns the hash of the weights. Called by every rank."""
    learner = make(world, sync="exact")
    learner.step(), learner.step()
    return weights_hash(dict(learner.model.state_dict()))


def test_continuous_actions_give_the_same_bits_on_any_number_of_ranks(ranks):
    (alone,) = ranks.run(train, ranks=1)
    assert set(ranks.run(train, ranks=3)) == {alone}


def test_what_it_cannot_learn_is_refused():
    with pytest.raises(UserError, match="needs a problem of kind env; choose another --algorithm"):
        make(problem=object())
    with pytest.raises(UserError, match="pretrain_bc 256: echo has no expert to imitate"):
        make(pretrain_bc=256)
    several = Tasks(action_sizes=(2, 2), episode_lengths=(1, 1), terminates=True)
    with pytest.raises(UserError, match="learns one task, and echo has 2 here"):
        make(problem=replace(ECHO, tasks=several))
