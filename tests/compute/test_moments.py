"""Moments from sums."""

import torch

from lockstep.compute.moments import RunningMoments, mean_and_deviation, moment_sums


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


def running(*parts):
    moments = RunningMoments(*(torch.full(shape, start, dtype=torch.float64) for shape, start in _EMPTY))
    for part in parts:
        moments.add(moment_sums(part))
    return moments


_EMPTY = (((2,), 0.0), ((2,), 1.0), ((), 0.0))


def test_running_moments_are_those_of_all_values_so_far():
    first, second = torch.tensor([[1.0, 2.0], [5.0, 5.0]]), torch.tensor([[3.0, 6.0, 8.0], [5.0, 5.0, 5.0]])
    moments = running(first, second)
    # (1, 2, 3, 6, 8): mean 4, squares of distances 9 + 4 + 1 + 4 + 16 = 34.
    assert moments.mean.tolist() == [4.0, 5.0] and moments.count.item() == 5.0
    torch.testing.assert_close(moments.variance, torch.tensor([6.8, 0.0], dtype=torch.float64))


def test_running_moments_start_with_the_first_values_alone():
    moments = running(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    assert moments.mean.tolist() == [2.0, 0.0] and moments.variance.tolist() == [1.0, 0.0]
