"""The scale of the values, from numbers worked out by hand."""

import pytest
import torch

from lockstep.algorithms.tdmpc2.training.value_scale import follow_spread, spread_of


def test_the_spread_lies_between_the_fifth_and_the_95th_percentile():
    values = torch.arange(101.0)[torch.randperm(101, generator=torch.Generator().manual_seed(0))]
    assert float(spread_of(values)) == pytest.approx(90.0)
    # Of 0, 10, 20: places 0.1 and 1.9 among them, so 1 and 19.
    assert float(spread_of(torch.tensor([20.0, 0.0, 10.0]))) == pytest.approx(18.0)


def test_the_spread_is_one_at_least():
    assert float(spread_of(torch.tensor([3.0, 3.1, 3.2]))) == 1.0
    assert float(spread_of(torch.tensor([7.0]))) == 1.0


def test_the_scale_follows_slowly():
    scale = torch.tensor(1.0)
    follow_spread(scale, torch.arange(101.0), tau=0.01)
    assert float(scale) == pytest.approx(0.99 + 0.01 * 90)
