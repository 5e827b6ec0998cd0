from dataclasses import replace

import pytest

from lockstep.algorithms.ppo.config import PPOConfig, batch_sizes
from lockstep.config.fields import describe_fields
from lockstep.config.sources import resolve
from lockstep.errors import UserError


def refusal(**fields):
    with pytest.raises(UserError) as caught:
        PPOConfig(**fields)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_envs": 7}, "n_envs 7 is no multiple of the run's 8 lanes; nearest: 4 or 8"),
        ({"n_envs": 3}, "n_envs 3 is no multiple of the run's 8 lanes; nearest: 2 or 4"),
        ({"n_envs": 12}, "n_envs 12 is no multiple of the run's 8 lanes; nearest: 8 or 16; or set --lanes 4"),
        ({"n_envs": 7, "batch_size": 7}, "nearest: 4 or 8; or set --lanes 7"),
        ({"n_envs": 3, "lanes": 4}, "n_envs 3 is no multiple of the run's 4 lanes; nearest: 4"),
        ({"n_envs": 64, "lanes": 24}, "n_envs 64 is no multiple of the run's 24 lanes; nearest: 48 or 72"),
    ],
)
def test_environments_must_fill_the_lanes(fields, message):
    assert message in refusal(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        # 64 x 128 = 8192 = 2^13, so that a batch is a power of two of at least 8.
        (
            {"batch_size": 100},
            "= 64 x 128 = 8192 and be a multiple of lanes x grad_accum = 8 x 1 = 8; nearest: 64 or 128",
        ),
        ({"batch_size": 4}, "batch_size 4 must divide n_envs x n_steps = 64 x 128 = 8192"),
        ({"batch_size": 4}, "nearest: 8"),
        ({"batch_size": 10_000}, "nearest: 8192"),
        ({"batch_size": 16, "grad_accum": 4}, "lanes x grad_accum = 8 x 4 = 32; nearest: 32"),
        ({"grad_accum": 3}, "lanes x grad_accum = 8 x 3 = 24; nearest: none; lower --grad-accum"),
        ({"n_envs": 24, "lanes": 6, "batch_size": 64}, "lanes x grad_accum = 6 x 1 = 6; nearest: 48 or 96"),
    ],
)
def test_a_batch_must_fill_lanes_parts_and_experience(fields, message):
    assert message in refusal(**fields)


def test_the_way_out_that_a_message_offers_is_one():
    assert PPOConfig(n_envs=12, lanes=4, batch_size=256).effective_lanes == 4
    assert PPOConfig(n_envs=7, lanes=7, batch_size=7).effective_lanes == 7
    assert PPOConfig(n_envs=24, lanes=6, batch_size=96).effective_lanes == 6


def test_training_for_less_than_one_update_is_refused():
    assert "total_timesteps 8191 is less than one update's n_envs x n_steps = 64 x 128 = 8192" in refusal(
        total_timesteps=8191
    )
    assert PPOConfig(total_timesteps=8192).rollout_size == 8192


def test_batch_sizes_are_the_divisors_that_are_multiples_of_the_unit():
    assert batch_sizes(48, 4) == [4, 8, 12, 16, 24, 48]
    assert batch_sizes(48, 5) == []
    assert batch_sizes(8, 8) == [8]


def test_weak_scaling_grows_environments_batch_and_rate():
    config = PPOConfig(n_envs=64, batch_size=256, learning_rate=1e-3, scaling="weak", lr_scaling="linear")
    assert config.for_world(4) == PPOConfig(n_envs=256, batch_size=1024, learning_rate=4e-3)


def test_the_guides_names_are_understood():
    words = [
        "--num-envs",
        "128",
        "--lr",
        "1e-3",
        "--clip-coef",
        "0.1",
        "--learning-rate",
        "2e-3",
        "--clip-range-vf",
        "none",
    ]
    assert resolve(PPOConfig(), overrides=words).config == PPOConfig(n_envs=128, learning_rate=2e-3, clip_range=0.1)


@pytest.mark.parametrize(
    "word",
    ["gamma=1.01", "gae_lambda=-0.1", "clip_range=0", "lr=0", "lr=2", "ent_coef=-1", "max_grad_norm=0", "n_epochs=0"],
)
def test_values_outside_their_range_are_refused(word):
    with pytest.raises(UserError, match="out of range; allowed: "):
        resolve(PPOConfig(), overrides=[word])


def test_every_field_has_a_line_of_help():
    group = describe_fields(PPOConfig)[0]
    assert [item.name for item in group.fields if not item.doc.endswith(".")] == []
    by_name = {item.name: item for item in group.fields}
    assert "over all ranks" in by_name["n_envs"].doc
    assert "over all ranks" in by_name["batch_size"].doc
    assert "over all ranks" in by_name["total_timesteps"].doc


def test_a_variant_is_checked_again():
    with pytest.raises(UserError):
        replace(PPOConfig(), n_envs=9)


def test_a_run_is_no_longer_than_its_random_counters():
    # 2^32 steps of each of 8 environments, and one update more; 4 epochs an update of 8 x 128 steps.
    message = refusal(n_envs=8, n_steps=128, batch_size=64, total_timesteps=8 * 2**32)
    assert "would be 4,294,967,296 steps of each environment, and random numbers repeat after" in message
    assert "epochs" in refusal(n_envs=8, n_steps=8, batch_size=64, n_epochs=16, total_timesteps=8 * 2**32 - 64)
    PPOConfig(n_envs=8, n_steps=128, batch_size=64, n_epochs=1, total_timesteps=8 * 2**32 - 1024)
