"""Derived settings, the number of updates, and combinations that are refused."""

import pytest

from lockstep.algorithms.tdmpc2.model.sizes import MODEL_SIZES
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.world_model import WorldModelSettings
from lockstep.config.config import Layout
from lockstep.errors import UserError

LAYOUT = Layout(TDMPC2Settings, network=WorldModelSettings)


def test_sizes_come_from_the_table_unless_they_are_given():
    settings = WorldModelSettings(model_size=19, mlp_dim=64)
    assert settings.size("mlp_dim") == 64 and settings.size("enc_dim") == 1024 and settings.size("num_q") == 5
    assert list(MODEL_SIZES) == [1, 5, 19, 48, 317]


def test_the_discount_follows_from_the_episode_length_within_bounds():
    settings = TDMPC2Settings()
    assert settings.discount_of(500) == pytest.approx(0.99)
    assert settings.discount_of(100) == 0.95 and settings.discount_of(10_000) == 0.995


def test_large_actions_get_more_iterations_of_planning():
    settings = TDMPC2Settings(iterations=6)
    assert settings.iterations_for(19) == 6 and settings.iterations_for(20) == 8


def test_the_updates_of_the_random_steps_come_first_and_then_the_ratio_holds():
    settings = TDMPC2Settings()
    assert settings.random_steps(500) == 2500 and settings.random_steps(100) == 1000
    assert [settings.updates_after(steps, 500) for steps in (0, 2499, 2500, 2501, 2600)] == [0, 0, 2500, 2501, 2600]
    settings = TDMPC2Settings(num_envs=8, updates_per_step=0.25, seed_steps=100, pretrain_updates=3)
    assert [settings.updates_after(steps, 500) for steps in (96, 104, 112, 120)] == [0, 4, 6, 8]


def test_the_replay_buffer_is_no_larger_than_the_run():
    assert TDMPC2Settings(steps=50_000, num_envs=4).memory_rows == 12_501
    assert TDMPC2Settings(steps=50_000, num_envs=4, buffer_size=8000).memory_rows == 2000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_size": 20}, "model_size 20: no such size; the nearest is 19; allowed: 1, 5, 19, 48, 317"),
        ({"horizon": 0}, "horizon 0: .*from 1 to 64"),
        ({"num_elites": 600}, "num_elites 600 is more than num_samples 512"),
        ({"num_envs": 12}, "num_envs 12 must be a multiple of the run's 8 lanes; nearest: 8 or 16"),
        ({"num_envs": 3}, "num_envs 3 must be a multiple of the run's 8 lanes; nearest: 2 or 4$"),
        (
            {"num_envs": 8, "batch_size": 100},
            "batch_size 100 must be a multiple of the run's 8 lanes; nearest: 96 or 104",
        ),
        ({"buffer_size": 5}, "buffer_size 5 and steps 10000000 must be at least 6"),
        ({"latent_dim": 20}, "latent_dim 20 must be a multiple of simnorm_dim 8"),
        ({"steps": 50}, "steps 50 is less than one round's num_envs x n_steps = 1 x 100 = 100"),
        ({"num_envs": 8, "seed_steps": 8}, "seed_steps 8 is less than horizon x num_envs = 3 x 8 = 24"),
        ({"vmin": 10.0}, "vmin and vmax are both 10"),
    ],
)
def test_invalid_combinations_are_refused_in_one_line(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        LAYOUT.config(changes)
    assert "\n" not in str(caught.value)


def test_weak_scaling_keeps_the_work_of_each_rank():
    config = LAYOUT.config({"scaling": "weak", "batch_size": 256}).for_world(8)
    settings = config.algorithm
    assert (settings.num_envs, settings.batch_size, settings.updates_per_step) == (8, 2048, 0.125)
    # After as many steps of each environment there are as many updates as on one rank.
    assert settings.updates_after(8 * 3000, 500) - settings.updates_after(8 * 2600, 500) == 400
    assert config.for_world(8) == config


def test_the_plan_states_the_ratio_of_updates():
    rows = dict(TDMPC2Settings(updates_per_step=0.5, sync_freq=4).work(str))
    assert "0.5 update(s) a step, applied 4 at a time" in rows["batch"]


def test_a_longer_run_with_a_larger_replay_buffer_cannot_be_resumed():
    longer = LAYOUT.config({"steps": 20_000})
    assert longer.changes_since(LAYOUT.config({"steps": 10_000})) == {"steps": (10_000, 20_000)}
    limited = LAYOUT.config({"steps": 20_000, "buffer_size": 5000})
    assert not limited.changes_since(LAYOUT.config({"steps": 10_000, "buffer_size": 5000}))


def test_a_problem_may_have_other_sizes_than_the_table():
    other = {19: {"latent_dim": 512}}
    assert WorldModelSettings(model_size=19).size("latent_dim", other) == 512
    assert WorldModelSettings(model_size=19, latent_dim=64).size("latent_dim", other) == 64
    assert WorldModelSettings(model_size=5).size("mlp_dim", other) == 512
    with pytest.raises(UserError, match="latent_dim 512 must be a multiple of simnorm_dim 3"):
        WorldModelSettings(model_size=19, simnorm_dim=3).check_latent(other)
