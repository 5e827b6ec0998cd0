"""The Gymnasium adapter on an environment whose numbers can be worked out by hand."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lockstep.envs.gym_adapter import GymDeclaration, TensorGymEnv, TensorGymVectorEnv
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError


class Counters:
    """Each row counts up by its action; at 3 the episode terminates, after four steps it is truncated."""

    def __init__(self, index, seed):
        self.seed, self.total, self.steps = seed, torch.zeros(len(index)), torch.zeros(len(index), dtype=torch.int64)

    def reset(self):
        return self.restart(torch.ones(len(self.total), dtype=torch.bool))

    def restart(self, ended):
        self.total[ended], self.steps[ended] = 0, 0
        return self.total[:, None]

    def advance(self, action):
        self.total += action
        self.steps += 1
        terminated = self.total >= 3
        truncated = (self.steps >= 4) & ~terminated
        return Transition(self.total[:, None], action * 0.5, terminated, truncated, info={"steps": self.steps.clone()})


DECLARATION = GymDeclaration(
    env_id="test/Counters-v0",
    observation_space=spaces.Box(0.0, 9.0, (1,), np.float32),
    actions=("stay", "one", "two"),
    make=Counters,
    renderers={"ansi": lambda env, row: f"{row}: {env.total[row]:.0f}"},
)


def test_a_step_of_one_environment_is_plain_python_and_a_copy():
    env = TensorGymEnv(DECLARATION, "ansi")
    first, info = env.reset(seed=0)
    observation, *results = env.step(2)
    assert (observation.tolist(), results) == ([2.0], [1.0, False, False, {"steps": 1}])
    assert (first.tolist(), info) == ([0.0], {}), "the first observation is not changed by later steps"
    assert env.render() == "0: 2"
    assert env.step(1)[2] is True


def test_a_seed_makes_a_new_environment_and_no_seed_keeps_it():
    env, same = TensorGymEnv(DECLARATION, None), TensorGymEnv(DECLARATION, None)
    env.reset(seed=5), same.reset(seed=5)
    kept = env._env
    assert kept.seed == same._env.seed
    env.reset()
    assert env._env is kept


def test_a_vector_reports_both_kinds_of_ends_and_restarts_them():
    env = TensorGymVectorEnv(DECLARATION, 3, None)
    env.reset(seed=0)
    for _ in range(3):
        observation, _, terminated, truncated, infos = env.step(np.array([0, 1, 0]))
    assert (terminated.tolist(), truncated.tolist()) == ([False, True, False], [False, False, False])
    assert observation.tolist() == [[0.0], [0.0], [0.0]], "the second row starts its next episode"
    assert infos["final_obs"][1].tolist() == [3.0] and infos["final_obs"][0] is None
    assert infos["_steps"].tolist() == [True, False, True], "facts about row 1 are in final_info"
    assert infos["final_info"]["steps"].tolist() == [3, 3, 3]
    assert infos["final_info"]["_steps"].tolist() == [False, True, False]
    _, _, terminated, truncated, _ = env.step(np.array([0, 0, 0]))
    assert (terminated.any(), truncated.tolist()) == (False, [True, False, True])


def test_without_a_render_mode_nothing_is_drawn():
    single, vector = TensorGymEnv(DECLARATION, None), TensorGymVectorEnv(DECLARATION, 2, None)
    single.reset(), vector.reset()
    assert single.render() is None and vector.render() is None


def test_wrong_use_is_refused_in_one_line():
    with pytest.raises(UserError, match='has no render_mode "human"; allowed: ansi'):
        TensorGymEnv(DECLARATION, "human")
    env = TensorGymVectorEnv(DECLARATION, 2, None)
    with pytest.raises(UserError, match="call reset before step or render"):
        env.step(np.array([0, 0]))
    env.reset()
    with pytest.raises(UserError, match=r"actions \[0, 3\]; allowed: 2 of 0 stay, 1 one, 2 two"):
        env.step(np.array([0, 3]))
