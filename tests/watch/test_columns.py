"""Log points as columns: what a chart gets to see."""

import math

import numpy as np

from lockstep.watch.columns import Columns, band, cut


def columns(*points):
    found = Columns()
    for point in points:
        found.add(point)
    return found


def test_points_without_a_tag_leave_no_gap_in_its_curve():
    found = columns(
        {"step": 1, "time": 10, "loss": 4.0},
        {"step": 2, "time": 11, "loss": None},
        {"step": 3, "time": 12, "loss": 2.0, "eval/x": 7},
    )
    x, y = found.curve("loss", "step")
    assert (x.tolist(), y.tolist()) == ([1, 3], [4.0, 2.0])
    x, y = found.curve("eval/x", "time")
    assert (x.tolist(), y.tolist()) == ([2.0], [7.0])
    assert [len(part) for part in found.curve("unknown", "step")] == [0, 0]


def test_what_is_no_log_point_is_left_out():
    found = columns(
        [],
        {"time": 1},
        {"step": True},
        {"step": -1},
        {"step": 5, "time": "now", "loss": "low", "huge": 10**400, "inf": 1e999},
        {"step": 5, "time": 2, "loss": 1.0},
        {"step": 6, "time": 2, "loss": 1.0, "bad\x1b[2Jtag": 1.0},
        {"step": 4, "time": 3, "loss": 9.0},
    )
    assert found.steps.tolist() == [5, 6] and set(found.tags) == {"loss", "huge", "inf"}
    assert found.curve("loss", "step")[1].tolist() == [1.0]
    assert found.curve("inf", "step")[1].tolist() == found.curve("huge", "step")[1].tolist() == []


def test_values_whose_sums_would_overflow_are_left_out():
    found = columns(
        {"step": 1, "time": 1e308, "loss": 1e308}, {"step": 2, "time": -1e308, "loss": -1e308, "speed": 1e99}
    )
    assert found.times.tolist() == [0.0, 0.0] and found.latest("loss", 2) is None and found.latest("speed") == 1e99
    assert found.curve("loss", "time", smooth=3)[1].tolist() == []


def test_time_never_goes_back():
    found = columns({"step": 1, "time": 10, "a": 1}, {"step": 2, "time": 4, "a": 2}, {"step": 3, "time": 12, "a": 3})
    assert found.curve("a", "time")[0].tolist() == [0, 0, 2]


def test_a_range_comes_with_one_point_on_either_side():
    x = np.arange(10.0)
    assert cut(x, x, (3.5, 5.5))[0].tolist() == [3, 4, 5, 6]
    assert cut(x, x, (-math.inf, math.inf))[0].tolist() == x.tolist()


def test_a_band_is_mean_lowest_and_highest_of_the_runs_that_are_there():
    one = (np.array([0.0, 2.0]), np.array([0.0, 2.0]))
    other = (np.array([0.0, 4.0]), np.array([4.0, 4.0]))
    found = band([one, other, (np.empty(0), np.empty(0))], 5)
    assert found["x"] == [0, 1, 2, 3, 4]
    assert found["y"] == [2.0, 2.5, 3.0, 4.0, 4.0]
    assert found["low"] == [0.0, 1.0, 2.0, 4.0, 4.0] and found["high"] == [4.0] * 5
    assert band([], 5)["x"] == []
