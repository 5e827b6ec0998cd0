"""A trained policy among others: rows, intervals, verdicts, and the curve of its account."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from lockstep.core.distributed.world import World
from lockstep.core.learner import Evaluation
from lockstep.workloads.trading.baselines import Interval
from lockstep.workloads.trading.build import build_learner
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.report import FORGETFUL, TRAINED, Report, Row, Section, _curves, report
from lockstep.workloads.trading.workload import debug

CONFIG = replace(debug(), episode_length=20)


def row(mean, half):
    return Row(Interval(mean, mean - half, mean + half), {"sharpe": 1.0})


def test_a_verdict_needs_intervals_that_do_not_touch():
    rows = {TRAINED: row(70.0, 10.0), "momentum": row(45.0, 16.0), "hold": row(0.0, 0.0), "oracle": row(100.0, 5.0)}
    lines = Section("simulated", rows).lines()
    assert lines[-2] == "  above, with intervals that do not touch: hold"
    assert lines[-1].endswith("earns: 70%")
    assert "60 to 80" in lines[1] and lines[1].split()[-5:] == ["-"] * 5


def test_a_curve_starts_with_the_capital_and_stays_where_it_ended():
    values = np.array([[100.0, 100.0], [90.0, 110.0], [80.0, 100.0]])
    played = Evaluation([0.0, 0.0], [3, 2], 0, {"trading_value": [70.0, 120.0]})
    # The second account's episode was over after two days: its third value belongs to the next.
    assert _curves(values, played).tolist() == [[100, 100], [90, 110], [80, 120], [70, 120]]


@pytest.fixture(scope="module")
def found():
    world = World().with_lanes(8, "fast")
    return report(CONFIG, build_learner(CONFIG, world), world, episodes=6, seed=5)


def test_everybody_trades_the_same_episodes(found):
    (section,) = found.sections.values()
    assert list(section.rows) == [
        TRAINED,
        FORGETFUL,
        "hold",
        "random",
        "buy_and_hold",
        "always_call",
        "momentum",
        "oracle",
    ]
    summary = found.summary()["simulated"]
    assert summary["hold"]["profit"] == 0.0
    assert summary[TRAINED]["low"] <= summary[TRAINED]["profit"] <= summary[TRAINED]["high"]
    assert {"sharpe", "sortino", "drawdown", "turnover", "exposure", "win_rate"} <= set(summary["random"])
    for name in ("random", "oracle"):
        equity = section.rows[name].equity
        assert equity.shape == (21, 6) and (equity[0] == 100_000).all()
        assert equity[-1].mean() - 100_000 == pytest.approx(summary[name]["profit"], rel=1e-5)


def test_the_chart_is_a_picture(found, tmp_path):
    (path,) = found.write(tmp_path)
    assert path.name == "equity.png"
    assert Image.open(path).size == (900, 460)


def test_memory_cleared_is_another_policy():
    learner = build_learner(CONFIG, World().with_lanes(8, "fast"))
    for parameter in learner.model.parameters():
        parameter.data.mul_(3.0)
    env = TradingEnv(CONFIG, torch.arange(64), 5, torch.device("cpu"))
    remembering, forgetful = learner.policy(), learner.policy(remembers=False)
    observation = env.reset()
    with torch.no_grad():
        assert torch.equal(remembering(observation, env), forgetful(observation, env))
        observation = env.step(torch.arange(64) % 11).observation
        assert not torch.equal(remembering(observation, env), forgetful(observation, env))


def test_a_report_tells_all_its_sections():
    section = Section("days of validation", {TRAINED: row(1.0, 0.5)})
    both = Report({"training_days": section, "validation_days": section})
    assert both.table().count("days of validation") == 2 and "nobody" in both.table()
