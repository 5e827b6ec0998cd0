"""The table of a sweep: numbers worked out by hand, within 80 columns."""

import json
import math
from pathlib import Path

import pytest

from lockstep.reporting.sweep_report import SweepReport, SweptRun, score_name


def swept(rate, seed, score, state="finished", **more):
    name = f"learning_rate-{rate}--seed-{seed}"
    return SweptRun(name, Path("runs/s") / name, {"learning_rate": rate, "seed": seed}, state, score, 512, 61.0, **more)


REPORT = SweepReport(
    "s",
    Path("runs/s"),
    "eval/return_mean",
    (
        swept(1e-4, 1, 1.0),
        swept(1e-4, 2, 2.0),
        swept(1e-4, 3, 3.0),
        swept(3e-4, 1, 5.0),
        swept(3e-4, 2, None, "failed", reason="no room"),
    ),
)


def test_means_and_standard_errors_are_over_seeds():
    first, second = REPORT.groups()
    # 1, 2, 3: mean 2, sample deviation 1, so the mean's standard error is 1 / sqrt(3).
    assert (first.settings, first.runs, first.mean) == ({"learning_rate": 1e-4}, 3, 2.0)
    assert first.standard_error == pytest.approx(1 / math.sqrt(3))
    assert (second.runs, second.mean, second.standard_error) == (1, 5.0, None)


def test_the_table_tells_settings_score_steps_duration_and_state():
    assert REPORT.lines() == [
        "learning_rate  seed  eval/return_mean  steps  duration  state",
        "0.0001         1                    1    512   0:01:01  finished",
        "0.0001         2                    2    512   0:01:01  finished",
        "0.0001         3                    3    512   0:01:01  finished",
        "0.0003         1                    5    512   0:01:01  finished",
        "0.0003         2                    -    512   0:01:01  failed",
        "",
        "learning_rate  mean eval/return_mean  standard error  seeds",
        "0.0001                             2          0.5774      3",
        "0.0003                             5               -      1",
        "",
        "best: runs/s/learning_rate-0.0003--seed-1",
        "learning_rate-0.0003--seed-2: failed: no room",
    ]


def test_there_are_no_groups_without_seeds():
    run = SweptRun("a", Path("a"), {"gamma": 0.9}, "waiting")
    report = SweepReport("s", Path("s"), "score", (run,))
    assert report.groups() == ()
    assert report.lines() == ["gamma  score  steps  duration  state", "0.9        -      -         -  waiting"]


def test_json_holds_the_same():
    content = json.loads(json.dumps(REPORT.to_json()))
    assert content["best"] == "learning_rate-0.0003--seed-1"
    assert content["runs"][4] == {
        "name": "learning_rate-0.0003--seed-2",
        "path": "runs/s/learning_rate-0.0003--seed-2",
        "settings": {"learning_rate": 3e-4, "seed": 2},
        "state": "failed",
        "score": None,
        "steps": 512,
        "seconds": 61.0,
        "reason": "no room",
    }
    assert content["groups"][0]["mean"] == 2.0


@pytest.mark.parametrize("count", [3, 7])
def test_a_wide_table_gets_letters_and_shorter_cells(count):
    settings = {f"a_setting_with_a_long_name_{number}": "value " * 6 for number in range(count)}
    lines = SweepReport("s", Path("s"), "eval/return_mean", (SweptRun("a", Path("a"), settings, "finished"),)).lines()
    assert lines[0] == "A = a_setting_with_a_long_name_0"
    assert max(map(len, lines)) <= 80
    assert "…" in lines[-1]


def test_the_score_is_named_by_the_metric_whose_best_value_it_is():
    points = [
        {"step": 1, "eval/return_mean": 1.0, "eval/length_mean": 9.0},
        {"step": 2},
        {"step": 3, "eval/return_mean": 4.0, "eval/length_mean": 8.0},
        {"step": 4, "eval/return_mean": 2.0, "eval/length_mean": None},
    ]
    assert score_name(points, 4.0) == "eval/return_mean"
    assert score_name([{"eval/log_loss": 0.7}, {"eval/log_loss": 0.6}], -0.6) == "-eval/log_loss"
    assert score_name([], 1.0) == "score"
