"""A trained policy compared with baselines: rows, intervals, conclusions, and account curves."""

import json
import math
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
import torch
from PIL import Image

from lockstep.cli.evaluate import table
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation, mean_of_defined
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.reports.comparison import (
    EQUAL_RISK,
    FORGETFUL,
    TRAINED,
    Interval,
    Report,
    Row,
    Section,
    Span,
)
from lockstep.workloads.trading.reports.report import curves, report
from lockstep.workloads.trading.workload import Trading

CONFIG = Trading().preset("debug").replace(episode_length=20)


def row(mean, half):
    return Row(Interval(mean, mean - half, mean + half), {"sharpe": 1.0})


def test_a_trader_is_beaten_only_if_the_intervals_do_not_overlap():
    rows = {TRAINED: row(70.0, 10.0), "momentum": row(45.0, 16.0), "hold": row(0.0, 0.0), "oracle": row(100.0, 5.0)}
    lines = Section("simulated", rows).lines()
    assert lines[-2] == "  significantly above (intervals do not overlap): hold"
    assert lines[-1].endswith("hidden regime: 70%")
    assert lines[2].split() == ["trained", "70", "60", "to", "80", "-", "1.00"]
    assert lines[7].split() == ["trained", *["-"] * 5]


def test_a_share_of_an_uncertain_profit_is_a_dash():
    rows = {TRAINED: row(70.0, 10.0), "oracle": row(0.5, 5.0)}
    assert Section("simulated", rows).lines()[-1].endswith("hidden regime: - (its own interval includes 0)")


def test_an_undefined_ratio_is_a_dash_and_counts_in_no_mean():
    assert mean_of_defined([2.0, math.nan, 4.0]) == 3.0 and mean_of_defined([math.nan]) is None
    rows = {TRAINED: Row(Interval(1.0, 0.0, 2.0), {"sharpe": 3.0, "sortino": None})}
    lines = Section("simulated", rows).lines()
    assert lines[2].endswith(" 3.00") and lines[4].split()[1:] == ["-"] * 5
    played = Evaluation([1.0, 2.0], [20, 20], 7, {"trading_sortino": [math.nan] * 2, "trading_sharpe": [math.nan, 4.0]})
    summary = {"workload": "trading", "policy": "hold"} | played.summary()
    lines = {line.split()[1]: line.split()[2:] for line in table(summary).splitlines() if line.startswith("trading s")}
    assert lines == {"sortino": ["-"] * 5, "sharpe": ["4.00", "0.00", "4.00", "4.00", "4.00"]}
    assert "trading_sortino_mean" not in played.numbers() and played.numbers()["trading_sharpe_mean"] == 4.0
    assert json.loads(json.dumps(summary, allow_nan=False))["episode_trading_sharpe"] == [None, 4.0]


def test_the_tables_fit_a_terminal_of_eighty_columns():
    rows = {name: row(-12_345.0, 10_000.0) for name in (TRAINED, EQUAL_RISK)}
    lines = Section("days that were kept from training, 2016-01-04 to 2016-03-31", rows).lines()
    assert max(map(len, lines[:7])) <= 80 and "win rate" in lines[4]


def test_without_an_interval_nobody_is_beaten():
    rows = {TRAINED: Row(Interval.of([5.0])), "hold": row(0.0, 0.0)}
    section = Section("simulated", rows)
    assert section.lines()[-1] == "  significantly above (intervals do not overlap): nobody"
    assert section.summary()[TRAINED] == {"profit": 5.0, "low": None, "high": None}


def test_the_lead_over_buy_and_hold_is_taken_episode_by_episode():
    """100 + 10, 20, 30 against 100 + 9, 18, 27: 1, 2, 3, and for two of them independent 2 +- 9.7 / sqrt 2."""
    mine, other = np.array([[100.0] * 3, [110.0, 120.0, 130.0]]), np.array([[100.0] * 3, [109.0, 118.0, 127.0]])
    rows = {TRAINED: replace(row(20.0, 5.0), equity=mine), EQUAL_RISK: replace(row(18.0, 5.0), equity=other)}
    section = Section("validation days", rows, Span("2016-01-04", "2016-03-31", 3, 60, 2, 0.9))
    assert section.lead.mean == 2.0 and section.lead.high - section.lead.low == pytest.approx(13.7, abs=0.2)
    about = section.summary()["about"]
    assert about["trained_less_equal_risk"]["profit"] == 2.0 and about["equal_risk_scale"] == 0.9
    lines = section.lines()
    assert lines[-4].startswith("  trained less buy and hold at equal risk: 2 ")
    assert "2016-01-04 to 2016-03-31: 3 episodes of 60 days" in lines[-3] and "0.90 of the capital" in lines[-1]


def test_a_curve_starts_with_the_capital_and_keeps_its_last_value():
    values = np.array([[100.0, 100.0], [90.0, 110.0], [80.0, 100.0]])
    # The second account's episode was over after two days: its third value belongs to the next.
    assert curves(values, [3, 2], [70.0, 120.0]).tolist() == [[100, 100], [90, 110], [80, 120], [70, 120]]


@pytest.fixture(scope="module")
def found():
    world = World().with_lanes(8, "fast")
    return report(CONFIG, Trading().build(CONFIG, world), world, episodes=6, seed=5)


def test_all_traders_trade_the_same_episodes(found):
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


def test_the_report_writes_a_chart(found, tmp_path):
    (path,) = found.write(tmp_path)
    assert path.name == "equity.png"
    assert Image.open(path).size == (900, 460)


def test_buy_and_hold_is_followed_day_by_day(found):
    held = found.sections["simulated"].rows["buy_and_hold"]
    assert held.equity.shape == (21, 6) and (held.equity[0] == 100_000).all()
    change = np.diff(held.equity, axis=0)
    assert held.ratios["volatility"] == pytest.approx((change.var(0).mean() * 365) ** 0.5 / 100_000)
    assert held.ratios["sharpe"] == pytest.approx((change.mean(0) / change.std(0)).mean() * 365**0.5)
    deepest = max(1 - held.equity[t, 0] / held.equity[: t + 1, 0].max() for t in range(21))
    assert 0 < deepest < 1 and held.ratios["drawdown"] > 0


def weekday(number):
    return date(2015, 1, 5) + timedelta(days=number // 5 * 7 + number % 5)


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """260 weekdays of two symbols; the last 20 %, from number 208 on, are for validation."""
    path, noise = tmp_path_factory.mktemp("bars") / "bars.csv", np.random.default_rng(1)
    lines = ["date,symbol,open,high,low,close,volume"]
    closes = 100 * np.exp(noise.normal(0.001, 0.01, size=(260, 2)).cumsum(0))
    for number, prices in enumerate(closes):
        for symbol, close in zip(("AAA", "BBB"), prices, strict=True):
            lines.append(f"{weekday(number)},{symbol},{close},{close + 1},{close - 1},{close},1000")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def historical(bars):
    config = CONFIG.replace(data=bars)
    world = World().with_lanes(8, "fast")
    return report(config, Trading().build(config, world), world, episodes=12, seed=5)


def test_validation_days_come_last_and_after_all_training_days(historical):
    assert list(historical.sections) == ["training_days", "validation_days"]
    train, unseen = (section.span for section in historical.sections.values())
    # The first 60 bars are only looked back on.
    assert (train.first, train.last) == (str(weekday(60)), str(weekday(207)))
    assert (unseen.first, unseen.last) == (str(weekday(208)), str(weekday(259)))
    # 147 and 51 days of each of two symbols, 20 of them an episode.
    assert (train.independent, unseen.independent) == (14, 4)


def test_buy_and_hold_at_equal_risk_has_the_policys_volatility(historical):
    for section in historical.sections.values():
        rows, scale = section.rows, section.span.scale
        assert rows[EQUAL_RISK].ratios["volatility"] == pytest.approx(rows[TRAINED].ratios["volatility"])
        assert rows[EQUAL_RISK].profit.mean == pytest.approx(scale * rows["buy_and_hold"].profit.mean)
        assert rows[EQUAL_RISK].ratios["sharpe"] == pytest.approx(rows["buy_and_hold"].ratios["sharpe"])
        assert "oracle" not in rows
    summary = historical.summary()["validation_days"]
    assert summary[EQUAL_RISK]["volatility"] > 0 and "trained policy's volatility" in summary["about"]["equal_risk"]


def test_clearing_the_memory_changes_the_policy():
    learner = Trading().build(CONFIG, World().with_lanes(8, "fast"))
    for parameter in learner.model.parameters():
        parameter.data.mul_(3.0)
    env = TradingEnv(CONFIG.workload, torch.arange(64), 5, torch.device("cpu"))
    remembering, forgetful = learner.policy(), learner.policy(remembers=False)
    observation = env.reset()
    with torch.no_grad():
        assert torch.equal(remembering(observation, env), forgetful(observation, env))
        observation = env.step(torch.arange(64) % 11).observation
        assert not torch.equal(remembering(observation, env), forgetful(observation, env))


def test_a_network_without_memory_has_no_row_with_memory_cleared():
    world, config = World().with_lanes(8, "fast"), Trading().preset("debug", network="mlp")
    (section,) = report(config, Trading().build(config, world), world, episodes=2, seed=5).sections.values()
    assert TRAINED in section.rows and FORGETFUL not in section.rows


def test_a_report_prints_all_its_sections():
    section = Section("validation days", {TRAINED: row(1.0, 0.5)})
    both = Report({"training_days": section, "validation_days": section})
    assert both.table().count("validation days") == 2 and "nobody" in both.table()
