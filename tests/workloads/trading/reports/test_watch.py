"""The blotter lists every trade, and its sums balance."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.workloads.trading.account.actions import BUY_CALL, CLOSE_ALL, HOLD
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.reports.baselines import evaluate_baseline
from lockstep.workloads.trading.reports.watch import blotter, scenes

SETTINGS = MarketSettings(episode_length=20)


class Script:
    """Acts by a list and records at which steps it was called with `begins`."""

    def __init__(self, *actions):
        self.actions, self.begun = actions, []

    def __call__(self, observation, begins=False):
        self.begun.append(begins)
        assert observation.shape == (1, 430)
        number = len(self.begun) - 1
        return torch.tensor([self.actions[number] if number < len(self.actions) else HOLD]), None


def test_every_trade_has_a_line_and_idle_days_have_none():
    act = Script(BUY_CALL, HOLD, BUY_CALL, CLOSE_ALL)
    lines, score = next(blotter(SETTINGS, act, seed=3))
    trades = [line.split() for line in lines[2:-2]]
    assert [(trade[0], trade[2]) for trade in trades] == [
        ("1", "buy_call"),
        ("3", "buy_call"),
        ("4", "close_all_positions"),
    ]
    assert trades[-1][-2] == "0"
    # What the account has gained is what was realised, since nothing is open.
    account, realised = (float(trades[-1][place].replace(",", "")) for place in (-1, -3))
    assert account - 100_000 == pytest.approx(realised, abs=0.02)
    assert score == pytest.approx(1e-4 * realised, abs=1e-5)
    assert f"Return: ${realised:,.2f}" in lines[-2] and "(2 closed, 0 open)" in lines[-2]
    assert act.begun == [True] + 19 * [False]


def test_a_narrow_terminal_goes_without_the_columns_that_are_needed_least():
    script = Script(BUY_CALL, HOLD, CLOSE_ALL)
    (_, head, *rows, _, _), _ = next(blotter(SETTINGS, script, seed=3, width=80))
    assert " ".join(head.split()) == "day price action traded $ closed realised $ open account $"
    assert max(map(len, (head, *rows))) <= 80 and rows[0].split()[:3:2] == ["1", "buy_call"]
    (_, head, *_), _ = next(blotter(SETTINGS, Script(), seed=3))
    assert "costs $" in head and "contracts" in head


def test_expired_options_are_shown_as_settled():
    lines, _ = next(blotter(replace(SETTINGS, expiry_days=7), Script(BUY_CALL), seed=3))
    assert [line.split()[:3:2] for line in lines[2:-2]] == [["1", "buy_call"], ["7", "settled"]]


def test_the_blotter_shows_the_episodes_of_an_evaluation():
    expected = evaluate_baseline("momentum", SETTINGS, World().with_lanes(8, "fast"), 3, seed=5).returns
    assert [score for _, score in islice(blotter(SETTINGS, "momentum", 5), 3)] == pytest.approx(expected, abs=1e-5)


def test_there_is_a_scene_for_every_day():
    seen = list(islice(scenes(SETTINGS, "always_call", 5), 21))
    assert [scene.ended for scene in seen] == 19 * [False] + [True, False]
    assert seen[0].drawing.paint().shape == (480, 640, 3)
    assert "day 20" in seen[19].caption and "buy_call" in seen[0].text
