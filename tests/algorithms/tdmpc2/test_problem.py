"""Problems that are not written for TD-MPC2: its assumptions about them, and those it refuses."""

import pytest
import torch

from lockstep.algorithms.tdmpc2.algorithm import TDMPC2
from lockstep.algorithms.tdmpc2.problem import environments, spaces_of
from lockstep.distributed.world import World
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.rl.problem import Continuous, Discrete, EnvProblem
from lockstep.storage.checkpoint import weights_hash

CPU = torch.device("cpu")


class Counter:
    """Counts steps in a picture of 2 x 3 bytes; every fifth one ends an episode. It has no index and no task."""

    observation_shape = (2, 3)

    def __init__(self, index, seed):
        self.count = len(index)
        self.age = torch.zeros(self.count, dtype=torch.int64)

    def reset(self):
        self.age = torch.zeros_like(self.age)
        return self.seen()

    def seen(self):
        return self.age.to(torch.uint8)[:, None, None].expand(-1, 2, 3)

    def step(self, action):
        assert action.shape == (self.count, 2)
        self.age = self.age + 1
        final, ended = self.seen(), self.age == 5
        self.age = torch.where(ended, 0, self.age)
        never = torch.zeros_like(ended)
        return Transition(self.seen(), action.sum(1), ended, never, final)

    def state(self):
        return {"age": self.age}

    def load(self, state):
        self.age = state["age"].clone()
        return self.seen()


def counting(**changes):
    return EnvProblem(
        **{
            "name": "counting",
            "observation_shape": (2, 3),
            "actions": Continuous(2),
            "make_env": Counter,
            **changes,
        }
    )


def test_by_default_episodes_have_a_thousand_steps_and_may_terminate():
    spaces = spaces_of(counting())
    assert (spaces.observation, spaces.actions, spaces.episode_lengths) == (6, (2,), (1000,)) and spaces.terminates
    assert not spaces_of(counting(), episodic=False).terminates


def test_environments_without_a_step_count_get_one():
    env = environments(counting(), torch.tensor([4, 7]), 1, CPU)
    assert env.reset().tolist() == [[0.0] * 6] * 2
    counts = []
    for _ in range(6):
        done = env.step(torch.zeros(2, 2))
        counts.append(env.steps.tolist()[0])
    assert counts == [1, 2, 3, 4, 0, 1]
    assert env.index.tolist() == [4, 7] and env.task.tolist() == [0, 0]
    assert done.observation.dtype == torch.float32 and done.final_observation.shape == (2, 6)


def test_any_problem_with_continuous_actions_is_learned_and_resumes_bitwise_identically(make_config):
    config = make_config(n_steps=5, seed_steps=40)
    world = World().with_lanes(config.effective_lanes, config.sync_on("cpu"))
    undisturbed, resumed = (TDMPC2().build(config, world, counting()) for _ in range(2))
    for _ in range(2):
        undisturbed.step()
    resumed.load(undisturbed.state())
    assert resumed.gradient_updates > 0
    undisturbed.step(), resumed.step()
    assert weights_hash(undisturbed.model.state_dict()) == weights_hash(resumed.model.state_dict())
    assert undisturbed.evaluate(2, seed=1).lengths == [5, 5]


def test_discrete_actions_are_refused_in_one_line(make_config):
    with pytest.raises(UserError, match="tdmpc2: needs continuous actions, and counting has discrete ones; choose"):
        TDMPC2().build(make_config(), World(), counting(actions=Discrete(4)))


def test_data_dir_is_refused_if_the_problem_has_no_recorded_episodes(make_config):
    config = make_config(data_dir="somewhere")
    learner = TDMPC2().build(config, World().with_lanes(config.effective_lanes, "fast"), counting())
    with pytest.raises(UserError, match="counting has no recorded episodes to learn from; leave it out"):
        learner.step()
