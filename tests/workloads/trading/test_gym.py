"""Gymnasium's view: its checkers, seeds, episodes that end, and refusals."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import lockstep.gym  # noqa: F401 - registers the environments
from lockstep.errors import UserError
from lockstep.workloads.trading.gym import ENV_ID, TradingGymEnv, TradingGymVectorEnv


@pytest.mark.parametrize("options", [{}, {"market": "jumps", "episode_length": 5}])
def test_gymnasiums_checker_accepts_one_account_without_a_warning(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV_ID, render_mode="ansi", **options).unwrapped)


def test_stable_baselines3s_checker_accepts_one_account():
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="stable-baselines3 is not installed")
    with warnings.catch_warnings():
        # It advises observations within -1 to 1; ours are about that, and at most 10.
        warnings.simplefilter("ignore")
        checker.check_env(TradingGymEnv())


def test_it_is_registered_by_name():
    env = gymnasium.make(ENV_ID, episode_length=3)
    assert env.reset(seed=1)[0].shape == (430,)
    many = gymnasium.make_vec(ENV_ID, num_envs=3, vectorization_mode="vector_entry_point")
    assert isinstance(many.unwrapped, TradingGymVectorEnv) and many.reset(seed=1)[0].shape == (3, 430)


def test_a_seed_reproduces_the_episode_and_another_one_does_not():
    def episode(seed):
        env = TradingGymEnv()
        seen = [env.reset(seed=seed)[0]]
        return np.stack(seen + [env.step(action)[0] for action in (1, 7, 0, 10, 3)])

    assert np.array_equal(episode(3), episode(3))
    assert not np.array_equal(episode(3), episode(4))


def test_many_accounts_start_anew_within_the_step_that_ended_them():
    env = TradingGymVectorEnv(num_envs=3, episode_length=4)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    env.reset(seed=0)
    for _ in range(3):
        _, _, terminated, truncated, infos = env.step(np.array([1, 2, 0]))
        assert not terminated.any() and "final_obs" not in infos
    observation, reward, terminated, truncated, infos = env.step(np.array([0, 0, 0]))
    assert terminated.all() and not truncated.any() and reward.dtype == np.float64
    assert infos["_final_obs"].all() and not infos["_profit"].any()
    assert infos["final_info"]["open_positions"].tolist() == [3, 3, 0]
    assert not np.array_equal(infos["final_obs"][0], observation[0])
    assert observation[:, 424].tolist() == [0, 0, 0], "the step index of a new episode"


def test_an_account_renders_as_a_line():
    env = TradingGymEnv(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "day 0: price 100.00, cash $100,000.00, 0 positions, value $100,000.00"
    assert TradingGymVectorEnv(num_envs=2, render_mode="ansi").render_mode == "ansi"


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="the nearest is episode_length"):
        TradingGymEnv(episode_lenght=3)
    with pytest.raises(UserError, match="render_mode"):
        TradingGymEnv(render_mode="rgb_array")
    env = TradingGymEnv()
    with pytest.raises(UserError, match="call reset"):
        env.step(0)
    env.reset()
    with pytest.raises(UserError, match="10 close_all_positions"):
        env.step(11)
