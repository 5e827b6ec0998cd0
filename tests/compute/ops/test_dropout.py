"""Dropout that depends on the sample alone."""

import torch

from lockstep.compute import random
from lockstep.compute.ops.dropout import NoiseDropout, bernoulli, salt_of

NOISE = random.random_words(7, "noise", torch.arange(500), 0)[0]


def test_a_tenth_is_dropped_and_the_rest_is_scaled_up():
    out = NoiseDropout(0.1, "here")(torch.ones(500, 20, 16), NOISE)
    left_out = out == 0
    assert abs(float(left_out.float().mean()) - 0.1) < 0.003
    torch.testing.assert_close(out[~left_out], torch.full_like(out[~left_out], 1 / 0.9))
    # No position and no sample is special: 160,000 draws, five deviations.
    assert float((left_out.float().mean(0) - 0.1).abs().max()) < 5 * (0.09 / 500) ** 0.5
    assert float((left_out.float().mean((1, 2)) - 0.1).abs().max()) < 5 * (0.09 / 320) ** 0.5


def test_what_is_dropped_of_a_sample_does_not_depend_on_the_batch():
    drop, value = NoiseDropout(0.3, "here"), torch.randn(500, 4, 8)
    whole = drop(value, NOISE)
    assert torch.equal(drop(value[100:107], NOISE[100:107]), whole[100:107])


def test_layers_and_steps_drop_different_elements():
    ones = torch.ones(500, 64)
    here, there = (NoiseDropout(0.5, place)(ones, NOISE) == 0 for place in ("here", "there"))
    later = NoiseDropout(0.5, "here")(ones, random.random_words(7, "noise", torch.arange(500), 1)[0]) == 0
    for other in (there, later):
        assert abs(float((here & other).float().mean()) - 0.25) < 0.01


def test_without_noise_nothing_changes():
    value = torch.randn(3, 5)
    assert NoiseDropout(0.9, "here")(value, None) is value
    assert NoiseDropout(0.0, "here")(value, NOISE[:3]) is value


def test_probabilities_of_one_and_zero():
    number = torch.arange(500, dtype=torch.int32)
    assert bool(bernoulli(NOISE, number, salt_of("x"), 1.0).all())
    assert not bool(bernoulli(NOISE, number, salt_of("x"), 0.0).any())
