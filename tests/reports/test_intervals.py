"""Intervals of means: against scipy, and against what they promise."""

import random

import pytest
from scipy import stats

from lockstep.reports import intervals


@pytest.mark.parametrize("freedom", [*range(1, 40), 60, 200, 5000])
def test_the_quantiles_are_those_of_students_distribution(freedom):
    assert intervals.t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-4)


def test_the_interval_of_a_mean_worked_by_hand():
    # Mean 2, variance 1, three values: 2 +- 4.3027 / sqrt(3).
    found = intervals.mean_of([1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (2.0, 3)
    assert found.low == pytest.approx(2 - 2.4842, abs=1e-3) and found.high == pytest.approx(2 + 2.4842, abs=1e-3)


def test_a_difference_is_welchs():
    ours, theirs = [1.0, 2.0, 3.0, 4.0], [2.0, 6.0, 1.0, 9.0, 4.0, 3.5, 8.0]
    found = intervals.difference(ours, theirs)
    welch = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval(0.95)
    # Degrees of freedom are rounded down, so it is a little wider, never narrower.
    assert found.low <= welch.low + 1e-3 and found.high >= welch.high - 1e-3
    assert found.high - found.low == pytest.approx(welch.high - welch.low, rel=0.03)


def test_one_value_has_no_interval():
    assert intervals.mean_of([5.0]).low is None and intervals.mean_of([5.0]).clear is None
    assert intervals.mean_of([]) is None
    assert intervals.difference([1.0], [2.0, 3.0]).high is None


def test_of_equal_groups_about_one_in_twenty_seems_different():
    draw = random.Random(1)
    groups = [[[draw.gauss(0, 1) for _ in range(5)] for _ in range(2)] for _ in range(1000)]
    wrong = sum(bool(intervals.difference(*pair).clear) for pair in groups)
    assert 25 <= wrong <= 70


@pytest.mark.parametrize("scale", [1e-100, 1e99])
def test_an_interval_does_not_depend_on_the_unit(scale):
    ours, theirs = [1.0, 2.0, 3.0, 4.0], [2.0, 6.0, 1.0, 9.0]
    plain = intervals.difference(ours, theirs)
    found = intervals.difference([scale * value for value in ours], [scale * value for value in theirs])
    assert (found.low / scale, found.high / scale) == pytest.approx((plain.low, plain.high))
