import warnings

import numpy as np
import pytest

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P, GameRules

pettingzoo_test = pytest.importorskip("pettingzoo.test", reason="pettingzoo is not installed")

from lockstep.workloads.snakes3v3.pettingzoo_env import SnakesParallelEnv  # noqa: E402 - only with pettingzoo


@pytest.mark.parametrize("rules", [SNAKES_3V3, SNAKES_5P], ids=["3v3", "5p"])
def test_pettingzoos_api_test_passes_without_a_warning(rules):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pettingzoo_test.parallel_api_test(SnakesParallelEnv(rules), num_cycles=220)


def test_pettingzoos_seed_test_passes():
    pettingzoo_test.parallel_seed_test(SnakesParallelEnv, num_cycles=40)


def actions(env, action=0):
    return dict.fromkeys(env.agents, action)


def test_all_agents_end_together_and_later_steps_return_nothing():
    env = SnakesParallelEnv(GameRules(max_steps=2))
    env.reset(seed=1)
    assert env.agents == [f"snake_{player}" for player in range(6)]
    assert not any(env.step(actions(env))[2].values())
    observations, rewards, terminations, truncations, infos = env.step(actions(env))
    assert all(terminations.values()) and not any(truncations.values())
    assert set(observations) == set(rewards) == set(infos) == set(env.possible_agents)
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})


def test_observations_lie_in_their_space():
    env = SnakesParallelEnv(observation="jidi26")
    observations, _ = env.reset(seed=3)
    for agent, seen in observations.items():
        assert seen.shape == (26,)
        assert env.observation_space(agent).contains(seen)


def test_reset_without_a_seed_starts_another_game():
    env = SnakesParallelEnv()
    first, _ = env.reset(seed=3)
    second, _ = env.reset()
    again, _ = env.reset(seed=3)
    assert not np.array_equal(first["snake_0"], second["snake_0"])
    assert np.array_equal(first["snake_0"], again["snake_0"])


def test_infos_report_deaths_and_scores():
    env = SnakesParallelEnv()
    env.reset(seed=3)
    infos = env.step(actions(env))[4]
    assert infos["snake_2"].keys() == {"died", "score"}


def test_render_returns_the_format_of_its_mode():
    for mode, kind in (("rgb_array", np.ndarray), ("ansi", str), (None, type(None))):
        env = SnakesParallelEnv(render_mode=mode)
        env.reset(seed=0)
        assert isinstance(env.render(), kind)


def test_bad_input_is_refused_in_one_line():
    with pytest.raises(UserError, match='no render_mode "human"; allowed: rgb_array, ansi'):
        SnakesParallelEnv(render_mode="human")
    env = SnakesParallelEnv()
    with pytest.raises(UserError, match="call reset before"):
        env.render() if env.render_mode else env._started()
    env.reset(seed=0)
    with pytest.raises(UserError, match="action of snake_0 is 4; allowed: 0 up, 1 down, 2 left, 3 right"):
        env.step(actions(env, 4))
