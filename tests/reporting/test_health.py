"""Run health: non-finite gradients, and ranks that slow the others down."""

import math

import pytest

from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.reporting.health import FiniteWatch, StragglerWatch
from lockstep.reporting.metrics import Stat

GOOD = {"train/skipped_updates": Stat.of([0.0]), "train/value_loss": Stat.of([1.0])}
BAD = {"train/skipped_updates": Stat.of([2.0]), "train/value_loss": Stat.of([math.nan])}
OVERFLOW = {"train/skipped_updates": Stat.of([1.0]), "train/value_loss": Stat.of([1.0])}


def watch(limit, lanes=4):
    return FiniteWatch(World().with_lanes(lanes, "exact"), limit)


def test_the_first_nonfinite_update_is_reported_with_its_rank_lane_and_loss():
    finite = watch(3)
    assert finite.note(1, [GOOD, GOOD, GOOD, GOOD]) is None
    warning = finite.note(2, [GOOD, GOOD, BAD, GOOD])
    assert warning.startswith("update 2: a gradient was not finite (rank 0 lanes 2..2 train/value_loss)")
    assert finite.note(3, [GOOD, GOOD, BAD, GOOD]) is None


def test_an_overflow_in_the_backward_pass_is_reported_as_such():
    assert "it overflowed in the backward pass" in watch(3).note(2, [OVERFLOW] * 4)


def test_too_many_nonfinite_updates_in_a_row_stop_the_run_and_a_finite_one_resets_the_count():
    finite = watch(3)
    for update, report in enumerate([BAD, BAD, GOOD, BAD, BAD], start=1):
        finite.note(update, [report] * 4)
    with pytest.raises(RunFailed, match="3 updates in a row"):
        finite.note(6, [BAD] * 4)


def test_learners_that_report_every_few_updates_are_counted_by_updates():
    window = {"train/skipped_updates": Stat.of([10.0]), "train/loss": Stat.of([math.nan])}
    some = {"train/skipped_updates": Stat.of([4.0]), "train/loss": Stat.of([math.nan])}
    finite = FiniteWatch(World().with_lanes(1, "exact"), 25, updates=100)
    told = []
    for update in range(101, 141):
        told.append(finite.note(update, [{110: window, 120: window, 130: some, 140: window}.get(update, {})]))
    # Ten in a row, twenty, then some that need not have been in a row, then ten again.
    assert [update for update, line in enumerate(told, start=101) if line] == [110, 130, 140]
    assert finite.note(150, [window]) is None
    with pytest.raises(RunFailed, match="30 updates in a row"):
        finite.note(160, [window])


def test_without_a_limit_nonfinite_updates_never_stop_the_run():
    finite = watch(0)
    assert len([line for line in (finite.note(update, [BAD] * 4) for update in range(1, 101)) if line]) == 1


def test_learners_that_skip_nothing_cause_no_warning():
    assert watch(1).note(0, [{}] * 4) is None


def test_a_slow_rank_is_reported_once_after_twenty_updates():
    stragglers = StragglerWatch()
    told = [stragglers.note([0.1, 0.16, 0.1, 0.1], 1) for _ in range(40)]
    assert [number for number, lines in enumerate(told, start=1) if lines] == [20]
    assert told[19][0].startswith("rank 1 slows the others down: its own work takes 1.6 times as long")


def test_of_two_ranks_the_slower_one_is_reported_and_neither_if_they_are_close():
    assert StragglerWatch().note([0.1, 0.2], 20)[0].startswith("rank 1 ")
    assert StragglerWatch().note([0.1, 0.14], 20) == []
    assert StragglerWatch().note([0.0, 0.0005], 20) == []


def test_one_fast_log_point_resets_the_count():
    stragglers = StragglerWatch()
    assert stragglers.note([0.1, 0.2], 19) == []
    assert stragglers.note([0.1, 0.1], 1) == []
    assert stragglers.note([0.1, 0.2], 19) == []
    assert stragglers.note([0.1, 0.2], 1)
