"""The table of `lockstep runs`: every line fits, and the best score is under its own name."""

from pathlib import Path

import pytest

from lockstep.reporting.runs_table import compact, in_order, table_lines
from lockstep.storage.run_summary import RunSummary


def run(name, **facts):
    common = {
        "path": Path("runs") / name,
        "workload": "snake",
        "preset": "small",
        "state": "stopped",
        "ranks": 2,
        "step": 100_000,
        "total_steps": 200_000,
        "seconds": 3725.0,
        "best_score": 12.345,
        "score_name": "return_mean",
        "lower_is_better": False,
        "changed": {},
        "updated": 1.0,
    }
    return RunSummary(**(common | {"name": name} | facts))


def test_a_run_has_everything_at_80_columns():
    lines = table_lines([run("snake-20261116-151700", changed={"seed": 3, "learning_rate": 0.001})], 80)
    assert lines == [
        "name                   state    steps  done     time  best",
        "snake-20261116-151700  stopped   100k   50%  1:02:05  max return 12.35",
        "    snake small on 2 ranks: seed=3 learning_rate=0.001",
        "max: higher is better; min: lower is better",
    ]


def test_a_log_loss_stands_under_its_name_with_its_direction():
    loss = run("a", best_score=-1.4142, score_name="log_loss", lower_is_better=True)
    assert table_lines([loss], None)[1].endswith("min log_loss 1.414")
    assert table_lines([loss], None)[-1] == "max: higher is better; min: lower is better"


def test_nothing_is_wider_than_the_terminal():
    changed = {f"some_setting_{number}": number * 1000 for number in range(12)}
    runs = [run("x" * 100, changed=changed, workload="my_package.things:Maze"), run("b")]
    for width in (80, 100, 200):
        lines = table_lines(runs, width)
        assert max(map(len, lines)) <= width
        assert all(any(f"{name}={value}" in line for line in lines) for name, value in changed.items())


def test_a_pipe_gets_whole_names():
    assert table_lines([run("x" * 100, changed={"a": 1, "b": "c d"})], None)[1:3] == [
        "x" * 100 + "  stopped   100k   50%  1:02:05  max return 12.35",
        "    snake small on 2 ranks: a=1 b='c d'",
    ]


def test_what_is_not_known_is_a_dash():
    old = run("old", preset="", ranks=0, total_steps=0, seconds=0.0, best_score=None, score_name="")
    assert table_lines([old], 80) == [
        "name  state    steps  done  time  best",
        "old   stopped   100k     -     -  -",
        "    snake",
    ]


@pytest.mark.parametrize(
    ("key", "order"),
    [("name", "abc"), ("best", "cab"), ("steps", "bca"), ("time", "bac"), ("updated", "acb"), ("ranks", "bca")],
)
def test_runs_are_sorted_by_a_column(key, order):
    runs = [
        run("b", best_score=None, step=9, seconds=9.0, updated=1.0, ranks=4),
        run("c", best_score=-1.0, step=8, seconds=1.0, updated=2.0, ranks=2),
        run("a", best_score=-2.0, step=7, seconds=2.0, updated=3.0, ranks=1),
    ]
    assert "".join(found.name for found in in_order(runs, key)) == order


def test_steps_are_written_short():
    assert [compact(number) for number in (0, 999, 1000, 12_345, 1_234_567, 999_999_999, 10**15)] == [
        "0",
        "999",
        "1k",
        "12.3k",
        "1.23M",
        "1G",
        "1000T",
    ]
