"""One sentence on what limits a run."""

import pytest

from lockstep.watch.columns import Columns
from lockstep.watch.limits import limit_of, ranks_of, shares


def measured(**tags):
    columns = Columns()
    for step in (1, 2):
        columns.add({"step": step, "time": step, **{name.replace("__", "/"): value for name, value in tags.items()}})
    return columns


def test_the_largest_part_is_named_with_its_share():
    columns = measured(time__split_environment=0.55, time__split_learning=0.30)
    assert limit_of(columns).startswith("Environment takes 55% of the time: ")
    found = shares(columns)
    assert found["environment"] == 0.55 and round(found["other"], 6) == 0.15


def test_what_no_part_accounts_for_is_evaluating_logging_and_saving():
    assert "--eval-every" in limit_of(measured(time__split_learning=0.2))


def test_a_rank_that_the_others_wait_for_comes_first():
    own = {f"time__own_seconds_rank{rank}": seconds for rank, seconds in enumerate((0.1, 0.25, 0.1))}
    speed = {f"time__fps_rank{rank}": 100.0 for rank in range(3)}
    columns = measured(time__split_learning=0.9, **own, **speed)
    assert ranks_of(columns) == 3
    assert limit_of(columns).startswith("Rank 1 slows the others down: its own work takes 2.5 times as long")


def test_a_ranks_own_split_is_not_taken_for_everyones():
    columns = measured(time__split_learning=0.5, time__split_learning_rank1=0.7)
    assert shares(columns)["learning"] == 0.5 and shares(columns, 1)["learning"] == 0.7


def test_nothing_is_said_of_a_run_without_log_points():
    assert limit_of(Columns()) == ""


def test_a_part_that_is_logged_now_and_then_counts_as_nothing_in_between():
    columns = Columns()
    for step in range(1, 5):
        split = {"time/split_learning": 0.9}
        if step == 4:
            split = {"time/split_learning": 0.3, "time/split_validating": 0.6}
        columns.add({"step": step, "time": float(step), **split})
    found = shares(columns)
    assert found == pytest.approx({"learning": 0.75, "validating": 0.15, "other": 0.1})
