import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import lockstep.gym  # noqa: F401 - registers the environments
from lockstep.errors import UserError
from lockstep.workloads.snake.gym import ENV_ID, SnakeGymEnv, SnakeGymVectorEnv


def make_vector(num_envs=4, **options):
    return gymnasium.make_vec(ENV_ID, num_envs=num_envs, vectorization_mode="vector_entry_point", **options)


@pytest.mark.parametrize(
    "options", [{}, {"grid_size": 5, "frame_stack": 2, "time_limit": "truncation", "max_steps": 9}]
)
def test_gymnasiums_checker_accepts_one_board_without_a_warning(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV_ID, render_mode="rgb_array", **options).unwrapped)


def test_stable_baselines3s_checker_accepts_one_board():
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="stable-baselines3 is not installed")
    with warnings.catch_warnings():
        # It advises images of 36 pixels and more in 0..255; ours are 0 and 1 by design.
        warnings.simplefilter("ignore")
        checker.check_env(SnakeGymEnv(render_mode="rgb_array"))


def test_a_seed_reproduces_the_game_and_another_one_does_not():
    def game(seed):
        env = gymnasium.make(ENV_ID, grid_size=6)
        seen = [env.reset(seed=seed)[0]]
        for _ in range(5):
            for action in (2, 0, 3, 3, 3, 3, 3, 3):
                observation, _, terminated, _, _ = env.step(action)
                seen.append(observation)
                if terminated:
                    break
            seen.append(env.reset()[0])
        return np.concatenate([frame.ravel() for frame in seen])

    first, again, other = game(3), game(3), game(4)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_resets_without_a_seed_place_other_foods():
    env = SnakeGymEnv(grid_size=12)
    env.reset(seed=0)
    foods = {int(env.reset()[0][1].argmax()) for _ in range(10)}
    assert len(foods) > 5


def test_a_step_returns_plain_numbers_and_the_board_as_it_ended():
    env = SnakeGymEnv(grid_size=4)
    observation, info = env.reset(seed=1)
    assert (observation.dtype, observation.shape, info) == (np.float32, (3, 4, 4), {})
    observation, reward, terminated, truncated, info = env.step(1)
    assert (type(reward), reward, terminated, truncated) == (float, -1.0, True, False)
    assert info == {"length": 3, "won": False}
    assert observation[0].ravel().nonzero()[0].tolist() == [9, 10, 11]


def test_a_reward_is_the_number_of_the_rules_and_not_its_float32_widened():
    env = SnakeGymEnv(grid_size=12)
    env.reset(seed=1)
    assert env.step(2)[1] == -0.01


def test_both_render_modes_show_the_board():
    assert SnakeGymEnv.metadata["render_fps"] == 10
    picture, drawing = (SnakeGymEnv(render_mode=mode, grid_size=5) for mode in ("rgb_array", "ansi"))
    picture.reset(seed=0), drawing.reset(seed=0)
    assert picture.render().shape == (100, 100, 3)
    assert drawing.render().startswith("╭")
    boards = SnakeGymVectorEnv(3, render_mode="rgb_array", grid_size=5)
    boards.reset(seed=0)
    assert [image.shape for image in boards.render()] == [(100, 100, 3)] * 3


def test_vector_boards_obey_their_spaces_and_reproduce():
    env, again = make_vector(grid_size=5), make_vector(grid_size=5)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert isinstance(env.unwrapped, SnakeGymVectorEnv)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=9)
    assert np.array_equal(observation, again.reset(seed=9)[0])
    for _ in range(50):
        actions = env.action_space.sample()
        results, same = env.step(actions), again.step(actions)
        assert results[0] in env.observation_space
        assert all(np.array_equal(a, b) for a, b in zip(results[:4], same[:4], strict=True))


def test_a_vector_step_reports_ends_as_gymnasiums_own_vector_does():
    ours = make_vector(2, grid_size=4, max_steps=2)
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make(ENV_ID, grid_size=4, max_steps=2)] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    ours.reset(seed=0), theirs.reset(seed=0)
    for actions in ([1, 2], [2, 2], [3, 0]):
        *results, info = ours.step(np.array(actions))
        *expected, their_info = theirs.step(np.array(actions))
        assert all(np.array_equal(a, b) for a, b in zip(results[1:], expected[1:], strict=True))
        assert info.keys() >= their_info.keys()
        ended = results[2] | results[3]
        assert np.array_equal(info["_length"], ~ended)
        if ended.any():
            assert np.array_equal(info["_final_obs"], their_info["_final_obs"])
            for board in range(2):
                final, reference = info["final_obs"][board], their_info["final_obs"][board]
                assert (final is None) == (reference is None)
                if final is not None:
                    assert np.array_equal(final[[0, 2]], reference[[0, 2]]), "all but the food, which is drawn"
            for key in ("length", "won"):
                mask = their_info["final_info"][f"_{key}"]
                assert np.array_equal(info["final_info"][f"_{key}"], mask)
                assert np.array_equal(info["final_info"][key][mask], their_info["final_info"][key][mask])


def test_gymnasiums_episode_statistics_work_on_the_vector():
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(make_vector(3, grid_size=4, max_steps=1))
    env.reset(seed=0)
    *_, info = env.step(np.array([1, 2, 2]))
    assert info["episode"]["l"].tolist() == [1, 1, 1]
    assert info["episode"]["r"].tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SnakeGymEnv(grid=8), 'has no setting "grid"; the nearest is grid_size'),
        (lambda: SnakeGymEnv(render_mode="human"), "allowed: rgb_array, ansi"),
        (lambda: SnakeGymEnv().step(0), "call reset before"),
        (lambda: _started().step(4), r"actions \[4\]; allowed: 1 of 0 left"),
    ],
)
def test_wrong_use_is_refused_in_one_line(call, message):
    with pytest.raises(UserError, match=message):
        call()


def _started():
    env = SnakeGymEnv()
    env.reset()
    return env


@pytest.mark.parametrize("imports", ["import gymnasium, lockstep.gym", "import lockstep.gym, gymnasium"])
def test_importing_lockstep_gym_registers_in_any_order_and_without_torch(imports):
    script = (
        f"{imports}; import sys; assert 'torch' not in sys.modules; "
        "print(gymnasium.make('lockstep/Snake-v0', grid_size=5))"
    )
    result = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", script], capture_output=True, text=True)
    assert "lockstep/Snake-v0" in result.stdout, result.stderr
