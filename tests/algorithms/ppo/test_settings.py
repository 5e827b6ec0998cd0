import pytest

from lockstep.algorithms.ppo.settings import PPOSettings, batch_sizes
from lockstep.config.config import Layout
from lockstep.config.fields import describe_fields
from lockstep.config.sources import resolve
from lockstep.errors import UserError
from lockstep.rl.network_settings import MLPSettings


def ppo(**fields):
    """A configuration of PPO with nothing to learn."""
    return Layout(PPOSettings, network=MLPSettings).config(fields)


def refusal(**fields):
    with pytest.raises(UserError) as caught:
        ppo(**fields)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_envs": 7}, "n_envs 7 must be a multiple of the run's 8 lanes; nearest: 4 or 8"),
        ({"n_envs": 3}, "n_envs 3 must be a multiple of the run's 8 lanes; nearest: 2 or 4"),
        ({"n_envs": 12}, "n_envs 12 must be a multiple of the run's 8 lanes; nearest: 8 or 16; or set --lanes 4"),
        ({"n_envs": 7, "batch_size": 7}, "nearest: 4 or 8; or set --lanes 7"),
        ({"n_envs": 3, "lanes": 4}, "n_envs 3 must be a multiple of the run's 4 lanes; nearest: 4"),
        ({"n_envs": 64, "lanes": 24}, "n_envs 64 must be a multiple of the run's 24 lanes; nearest: 48 or 72"),
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
    assert ppo(n_envs=12, lanes=4, batch_size=256).effective_lanes == 4
    assert ppo(n_envs=7, lanes=7, batch_size=7).effective_lanes == 7
    assert ppo(n_envs=24, lanes=6, batch_size=96).effective_lanes == 6


def test_training_for_less_than_one_update_is_refused():
    assert "total_timesteps 8191 is less than one update's n_envs x n_steps = 64 x 128 = 8192" in refusal(
        total_timesteps=8191
    )
    assert ppo(total_timesteps=8192).algorithm.rollout_size == 8192


def test_batch_sizes_are_the_divisors_that_are_multiples_of_the_unit():
    assert batch_sizes(48, 4) == [4, 8, 12, 16, 24, 48]
    assert batch_sizes(48, 5) == []
    assert batch_sizes(8, 8) == [8]


def test_weak_scaling_grows_environments_batch_and_rate():
    config = ppo(n_envs=64, batch_size=256, learning_rate=1e-3, scaling="weak", lr_scaling="linear")
    assert config.for_world(4) == ppo(n_envs=256, batch_size=1024, learning_rate=4e-3)


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
    assert resolve(ppo(), overrides=words).config == ppo(n_envs=128, learning_rate=2e-3, clip_range=0.1)


@pytest.mark.parametrize(
    "word",
    ["gamma=1.01", "gae_lambda=-0.1", "clip_range=0", "lr=0", "lr=2", "ent_coef=-1", "max_grad_norm=0", "n_epochs=0"],
)
def test_values_outside_their_range_are_refused(word):
    with pytest.raises(UserError, match="out of range; allowed: "):
        resolve(ppo(), overrides=[word])


def test_every_field_has_a_line_of_help():
    group = describe_fields(PPOSettings)[0]
    assert [item.name for item in group.fields if not item.doc.endswith(".")] == []
    by_name = {item.name: item for item in group.fields}
    assert "over all ranks" in by_name["n_envs"].doc
    assert "over all ranks" in by_name["batch_size"].doc
    assert "over all ranks" in by_name["total_timesteps"].doc


def test_a_variant_is_checked_again():
    with pytest.raises(UserError):
        ppo().replace(n_envs=9)


def test_a_run_is_no_longer_than_its_random_counters():
    # 2^32 steps of each of 8 environments, and one update more; 4 epochs an update of 8 x 128 steps.
    message = refusal(n_envs=8, n_steps=128, batch_size=64, total_timesteps=8 * 2**32)
    assert "would be 4,294,967,296 steps of each environment, and random numbers repeat after" in message
    assert "epochs" in refusal(n_envs=8, n_steps=8, batch_size=64, n_epochs=16, total_timesteps=8 * 2**32 - 64)
    ppo(n_envs=8, n_steps=128, batch_size=64, n_epochs=1, total_timesteps=8 * 2**32 - 1024)


def test_halved_batches_are_computed_in_twice_as_many_parts():
    config = ppo(n_envs=8, n_steps=8, batch_size=32)
    assert config.halved(2) == config.replace(grad_accum=4)
    # Each of the 8 lanes has four samples of a batch: no fewer than one a part.
    assert config.halved(3) is None


def test_a_critic_without_a_rate_of_its_own_learns_as_fast_as_the_rest():
    assert ppo(learning_rate=1e-3).algorithm.critic_rate == 1.0
    assert ppo(learning_rate=1e-3, learning_rate_critic=4e-3).algorithm.critic_rate == pytest.approx(4.0)


def test_weak_scaling_leaves_a_critic_without_a_rate_of_its_own_without_one():
    scaled = ppo(scaling="weak", lr_scaling="linear").for_world(2).algorithm
    assert scaled.learning_rate == 6e-4 and scaled.learning_rate_critic is None


def test_without_a_memory_sequence_length_divides_nothing():
    config = ppo(n_steps=128, sequence_length=5, batch_size=8)
    assert config.algorithm.sequence_steps(config) == 1
