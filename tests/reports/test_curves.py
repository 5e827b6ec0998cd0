"""Curves at equal steps, in numbers worked out by hand."""

from dataclasses import replace

import pytest

from lockstep.reports import curves
from lockstep.reports.recorded_run import Curve
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_summary import summary


def test_runs_of_different_length_are_compared_over_the_steps_that_both_have():
    assert curves.common_steps([Curve([10, 100], [0, 0]), Curve([20, 70], [0, 0])]) == (20, 70)
    assert curves.common_steps([Curve([10, 20], [0, 0]), Curve([20, 30], [0, 0])]) is None
    assert curves.common_steps([Curve([], []), Curve([20, 30], [0, 0])]) is None


def test_a_straight_line_has_its_middle_as_mean_and_its_end_as_best():
    found = curves.numbers(Curve([0, 50, 100], [0.0, 5.0, 10.0]), 0, 100, lower=False)
    # The last tenth runs from 9 to 10.
    assert (found.mean, found.best, found.last) == (5.0, 10.0, pytest.approx(9.5))
    assert curves.numbers(Curve([0, 50, 100], [0.0, 5.0, 10.0]), 0, 100, lower=True).best == 0.0


def test_a_mean_weighs_values_by_their_steps_not_by_their_number():
    # Ten log points in the first ten steps, then one at step 100.
    steps = [*range(11), 100]
    assert curves.numbers(Curve(steps, [*[1.0] * 11, 1.0]), 0, 100, lower=False).mean == pytest.approx(1.0)
    assert curves.numbers(Curve([0, 10, 100], [0.0, 0.0, 10.0]), 0, 100, lower=False).mean == pytest.approx(4.5)


def test_only_the_steps_in_common_count():
    curve = Curve([0, 50, 100], [0.0, 100.0, 0.0])
    found = curves.numbers(curve, 0, 25, lower=False)
    assert (found.best, found.mean) == (50.0, 25.0)


def test_a_thinned_curve_keeps_its_peaks():
    values = [0.0] * 10_000
    values[1234], values[8000] = 7.0, -3.0
    thin = curves.thinned(Curve(list(range(10_000)), values), 100)
    assert len(thin.steps) <= 102 and max(thin.values) == 7.0 and min(thin.values) == -3.0
    assert thin.steps == sorted(thin.steps)


def test_few_points_are_not_smoothed_and_many_are_averaged():
    assert curves.smoothed(Curve([1, 2], [0.0, 1.0])) is None
    noisy = Curve(list(range(100)), [0.0, 2.0] * 50)
    assert all(0.7 < value < 1.3 for value in curves.smoothed(noisy).values[5:-5])


def test_a_spike_leaves_no_mark_on_the_rest_of_a_smoothed_curve():
    spiky = Curve(list(range(100)), [1e20, *[0.5] * 99])
    assert curves.smoothed(spiky).values[3:] == [0.5] * 97


def test_losses_are_better_if_lower():
    assert curves.lower_is_better("train/value_loss") and not curves.lower_is_better("rollout/return_mean")


def test_what_a_run_has_recorded_of_its_score_counts_more_than_the_name(record):
    recorded = summary(RunDirectory(record("a")))
    distance = replace(recorded, score_name="distance", lower_is_better=True)
    assert curves.lower_is_better("eval/distance", distance) and not curves.lower_is_better("eval/distance")
    assert not curves.lower_is_better("eval/loss", replace(recorded, score_name="loss", lower_is_better=False))
    assert curves.lower_is_better("train/loss", distance)
