"""Per-task results of an evaluation, worked out by hand."""

import pytest

from lockstep.cli.evaluate import table
from lockstep.workloads.control.report import per_task


def results(**columns):
    return {"episode_returns": [100.0, 8.0, 300.0, 12.0], **columns}


def test_a_single_task_without_a_goal_has_nothing_to_add():
    assert per_task(("walker-walk",), results()) == {}


def test_a_task_with_a_goal_reports_its_success_rate():
    found = per_task(("mw-reach",), results(episode_control_success=[1.0, 0.0, 1.0, 1.0]))
    assert found["tasks"]["mw-reach"]["success"] == 0.75
    assert "normalised_score" not in found


def test_the_normalised_score_is_the_mean_over_tasks_not_over_episodes():
    found = per_task(
        ("walker-walk", "mw-reach"),
        results(
            episode_control_task=[0.0, 1.0, 0.0, 0.0],
            episode_control_success=[0.0, 1.0, 0.0, 0.0],
            episode_control_score=[10.0, 100.0, 30.0, 1.2],
        ),
    )
    walk = found["tasks"]["walker-walk"]
    assert (walk["episodes"], walk["return"]) == (3, pytest.approx(412 / 3))
    assert walk["score"] == pytest.approx(41.2 / 3)
    assert found["tasks"]["mw-reach"] == {
        "episodes": 1,
        "return": 8.0,
        "deviation": 0.0,
        "success": 1.0,
        "score": 100.0,
    }
    assert found["normalised_score"] == pytest.approx((41.2 / 3 + 100) / 2)


def test_the_table_has_a_line_for_each_task_and_none_for_their_numbers():
    numbers = {f"{name}_{kind}": 1.0 for name in ("return", "control_task") for kind in _KINDS}
    rows = {"walker-walk": {"episodes": 2, "return": 962.0, "score": 96.2}}
    about = {"workload": "control", "policy": "random", "episodes": 2, "seed": 1}
    text = table(about | numbers | {"tasks": rows, "normalised_score": 96.2})
    assert "control task" not in text
    assert [line.split() for line in text.splitlines()][-2:] == [
        ["walker-walk", "2", "962.00", "96.20"],
        ["normalised", "score", "96.20"],
    ]


_KINDS = ("mean", "deviation", "min", "max", "median")
