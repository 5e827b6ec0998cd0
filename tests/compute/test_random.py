"""Counter-based random numbers: the generator is the published one, and a draw depends on its counter alone."""

import pytest
import torch

from lockstep.compute import random
from lockstep.errors import RunFailed, UserError

ALL_ONES = 0xFFFFFFFF

# From the known-answer file of the Random123 distribution: philox4x32, 10 rounds.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ALL_ONES,) * 4, (ALL_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, expected):
    words = random.philox(tuple(torch.tensor(word, dtype=torch.int64) for word in counter), key)
    assert tuple(int(word) for word in words) == expected


def test_a_draw_does_not_depend_on_its_neighbours():
    index = torch.arange(100)
    whole = random.uniform(7, "action", index, 3)
    parts = torch.cat([random.uniform(7, "action", index[:33], 3), random.uniform(7, "action", index[33:], 3)])
    assert torch.equal(whole, parts)


def test_seed_purpose_index_step_and_draw_all_matter():
    index = torch.arange(4)
    first = random.uniform(1, "a", index, 0, 0)
    others = [
        random.uniform(2, "a", index, 0, 0),
        random.uniform(1 + 2**32, "a", index, 0, 0),
        random.uniform(1, "b", index, 0, 0),
        random.uniform(1, "a", index + 4, 0, 0),
        random.uniform(1, "a", index, 1, 0),
        random.uniform(1, "a", index, 0, 1),
    ]
    assert all((first != other).all() for other in others)


def test_uniform_numbers_fill_the_unit_interval_evenly():
    numbers = random.uniform(0, "test", torch.arange(100_000), 0)
    assert float(numbers.min()) >= 0.0 and float(numbers.max()) < 1.0
    counts = torch.histc(numbers, bins=10, min=0, max=1)
    # Deviation of a bin is about 95; six of them leave no room for chance at a fixed seed.
    assert float((counts - 10_000).abs().max()) < 570


def test_the_largest_word_stays_below_one():
    assert float(random.to_unit(torch.tensor(ALL_ONES))) == 1.0 - 2.0**-24


def test_normal_numbers_have_mean_zero_and_deviation_one():
    numbers = random.normal(0, "test", torch.arange(100_000), 0)
    assert abs(float(numbers.mean())) < 0.015
    assert abs(float(numbers.std()) - 1.0) < 0.01


def test_permutations_are_complete_and_differ_by_index():
    both = random.permutations(5, "minibatch", torch.tensor([3, 4]), 9, 50)
    assert torch.equal(both.sort(dim=1).values, torch.arange(50).expand(2, 50))
    assert not torch.equal(both[0], both[1])
    assert torch.equal(both[1:], random.permutations(5, "minibatch", torch.tensor([4]), 9, 50))


def test_steps_can_be_a_tensor_that_broadcasts():
    index, steps = torch.arange(3), torch.arange(2)
    table = random.uniform(0, "x", index[None, :], steps[:, None])
    assert table.shape == (2, 3)
    assert torch.equal(table[1], random.uniform(0, "x", index, 1))


def test_derived_seeds_differ_by_purpose_and_fit_63_bits():
    seeds = {random.derive_seed(42, purpose) for purpose in ("a", "b", "c")}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("seed", [2**64, 2**64 + 7, -1])
def test_a_seed_that_would_repeat_another_is_refused(seed):
    with pytest.raises(UserError, match=rf"seed {seed}: .* allowed: from 0 to 2\^64 - 1"):
        random.uniform(seed, "a", torch.arange(4), 0)
    assert random.uniform(2**64 - 1, "a", torch.arange(4), 0).shape == (4,)


@pytest.mark.parametrize("place", ["index", "step", "draw"])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_a_counter_that_would_wrap_around_ends_the_run(place, as_tensor):
    def draw(value):
        counter = {"index": torch.zeros(2, dtype=torch.int64), "step": 0, "draw": 0}
        counter[place] = torch.full((2,), value) if as_tensor or place == "index" else value
        return random.uniform(1, "a", **counter)

    assert draw(2**32 - 1).shape == (2,) if as_tensor or place == "index" else draw(2**32 - 1).numel()
    with pytest.raises(RunFailed, match=r"has reached 2\^32"):
        draw(2**32)
    with pytest.raises(RunFailed, match=r"has reached 2\^32"):
        draw(2**32 + 5)
