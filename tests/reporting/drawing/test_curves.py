"""Curves before they are drawn, in numbers worked out by hand."""

import numpy as np
import pytest

from lockstep.reporting.drawing.curves import downsample, moving_average


def test_down_sampling_keeps_every_peak():
    x = np.arange(10_000.0)
    y = np.zeros(10_000)
    y[1234], y[7777] = 5.0, -3.0
    few_x, few_y = downsample(x, y, 100)
    assert len(few_x) <= 102
    assert few_y[few_x == 1234] == 5.0 and few_y[few_x == 7777] == -3.0
    assert few_x[0] == 0 and few_x[-1] == 9999 and (np.diff(few_x) > 0).all()


def test_few_points_and_points_at_one_place_are_left_as_they_are():
    x, y = downsample(np.array([1.0, 2.0]), np.array([3.0, 4.0]), 100)
    assert (x.tolist(), y.tolist()) == ([1, 2], [3, 4])
    assert len(downsample(np.zeros(500), np.arange(500.0), 10)[0]) <= 4


def test_a_moving_average_is_centred_and_uses_what_there_is_at_the_ends():
    # By hand: (1+2)/2, (1+2+6)/3, (2+6+4)/3, (6+4)/2.
    assert moving_average(np.array([1.0, 2.0, 6.0, 4.0]), 3).tolist() == [1.5, 3.0, 4.0, 5.0]
    assert moving_average(np.array([1.0, 5.0]), 1).tolist() == [1.0, 5.0]
    assert moving_average(np.empty(0), 101).tolist() == []


@pytest.mark.parametrize("count", [60, 61, 62, 63, 64])
def test_a_spike_is_felt_within_its_window_only(count):
    values = np.full(count, 0.5)
    values[10] = 1e20
    found = moving_average(values, 5)
    assert found[:8].tolist() == [0.5] * 8 and found[13:].tolist() == [0.5] * (count - 13)
    assert (found[8:13] == 2e19).all()


@pytest.mark.parametrize("window", [2, 3, 7, 50, 51, 1000])
def test_every_window_is_the_mean_of_what_is_in_it(window):
    values, half = np.random.default_rng(1).normal(size=50), min(window, 50) // 2
    by_hand = [values[max(i - half, 0) : i + half + 1].mean() for i in range(50)]
    assert moving_average(values, window) == pytest.approx(by_hand)
