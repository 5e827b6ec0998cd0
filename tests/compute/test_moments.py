"""Moments from sums."""

import torch

from lockstep.compute.moments import mean_and_deviation, moment_sums


def test_sums_of_parts_give_the_moments_of_the_whole():
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])
    sums = moment_sums(values[:1]) + moment_sums(values[1:])
    assert mean_and_deviation(sums)[0] == 3.0
    torch.testing.assert_close(mean_and_deviation(sums)[1], values.std())


def test_a_single_value_has_no_deviation():
    assert mean_and_deviation(moment_sums(torch.tensor([4.0]))).tolist() == [4.0, 0.0]


def test_a_large_mean_does_not_lose_the_deviation():
    values = 10_000.0 + torch.tensor([0.0, 1.0, 2.0])
    torch.testing.assert_close(mean_and_deviation(moment_sums(values))[1], torch.tensor(1.0), rtol=1e-4, atol=0)
