"""Bulk random numbers: the right distributions, the same whoever draws them, and never twice the same."""

import torch

from lockstep.algorithms.tdmpc2 import chance


def test_normals_have_the_moments_of_a_normal_distribution():
    numbers = chance.normals(1, "test", torch.arange(2), 3, 50_001)
    assert numbers.shape == (2, 50_001)
    for power, expected, tolerance in ((1, 0.0, 0.02), (2, 1.0, 0.03), (3, 0.0, 0.1), (4, 3.0, 0.2)):
        assert abs(float(numbers.pow(power).mean()) - expected) < tolerance
    # Neighbours of one pair come from the same radius; they must not be correlated for it.
    assert abs(float((numbers[:, :-1:2] * numbers[:, 1::2]).mean())) < 0.02


def test_uniforms_fill_the_range():
    numbers = chance.uniforms(1, "test", torch.arange(1), 0, 40_000)
    counts = torch.histc(numbers, 10, 0.0, 1.0)
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1 and float((counts - 4000).abs().max()) < 300


def test_draws_depend_on_index_step_and_purpose_and_not_on_who_is_drawn_together():
    together = chance.normals(5, "test", torch.arange(4), torch.tensor(7), 10)
    assert torch.equal(together[2:3], chance.normals(5, "test", torch.tensor([2]), 7, 10))
    others = [("other", 5, 7), ("test", 6, 7), ("test", 5, 8)]
    for purpose, seed, step in others:
        assert not torch.equal(together, chance.normals(seed, purpose, torch.arange(4), step, 10))
    assert len(set(together.flatten().tolist())) == 40


def test_dropout_leaves_out_its_share_and_keeps_the_mean():
    factors = chance.kept(3, "test", torch.arange(2), 1, 100_000, dropout=0.25)
    torch.testing.assert_close(factors.unique(), torch.tensor([0.0, 4 / 3]))
    assert abs(float((factors == 0).float().mean()) - 0.25) < 0.005


def test_pairs_are_of_different_members_and_all_come_up_equally():
    pairs = chance.pair(2, "test", torch.arange(20_000), 5)
    counts = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).view(5, 5)
    assert counts.diagonal().tolist() == [0] * 5
    assert int(counts[~torch.eye(5, dtype=torch.bool)].min()) > 900 and int(counts.max()) < 1100
    assert chance.pair(2, "test", torch.tensor(3), 1).tolist() == [0, 0]
    assert sorted(chance.pair(2, "test", torch.tensor(3), 2).tolist()) == [0, 1]
