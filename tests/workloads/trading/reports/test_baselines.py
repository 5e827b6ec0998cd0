"""Traders without a network: what each does, and what each earns in the regime market."""

from math import inf

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.workloads.trading.account.actions import BUY_CALL, BUY_PUT, CLOSE_ALL, HOLD
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.reports.baselines import TRADERS, evaluate_baseline, follow
from lockstep.workloads.trading.reports.comparison import Interval

CPU = torch.device("cpu")
PAID = ("random", "momentum", "oracle")


def env(count=3, **settings):
    made = TradingEnv(MarketSettings(**settings), torch.arange(count), 5, CPU)
    made.reset()
    return made


def profits(result):
    return Interval.of(result.extra["trading_profit"])


def test_a_direction_is_followed_until_it_changes():
    traded = env(count=3, max_positions=2)
    up = torch.tensor([1.0, -1.0, 0.0])
    assert follow(traded, up).tolist() == [BUY_CALL, BUY_PUT, HOLD]
    traded.step(follow(traded, up))
    traded.step(follow(traded, up))
    assert follow(traded, up).tolist() == [HOLD, HOLD, HOLD]
    assert follow(traded, -up).tolist() == [CLOSE_ALL, CLOSE_ALL, HOLD]
    traded.step(follow(traded, -up))
    assert follow(traded, -up).tolist() == [BUY_PUT, BUY_CALL, HOLD]


def test_the_momentum_rule_follows_the_bars_and_the_oracle_the_regime():
    traded = env(count=40)
    rising = traded.market.bars[:, 3, -1] > traded.market.bars[:, 3, 0]
    assert torch.equal(TRADERS["momentum"](traded), torch.where(rising, BUY_CALL, BUY_PUT))
    assert torch.equal(TRADERS["oracle"](traded), torch.where(traded.market.regime > 0, BUY_CALL, BUY_PUT))
    assert TRADERS["always_call"](traded).tolist() == [BUY_CALL] * 40


def test_random_actions_are_uniform_and_determined_by_the_seed():
    traded = env(count=11_000)
    counts = torch.bincount(TRADERS["random"](traded), minlength=11)
    assert len(counts) == 11 and counts.min() > 880 and counts.max() < 1120
    assert torch.equal(TRADERS["random"](traded), TRADERS["random"](traded))


def test_intervals_follow_students_distribution():
    """1..5: mean 3, deviation sqrt(2.5), and 2.776 for four degrees of freedom: 3 +- 1.963."""
    found = Interval.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.mean, found.low, found.high) == pytest.approx((3.0, 1.037, 4.963), abs=0.02)
    assert Interval.of([2.0]) == Interval(2.0, -inf, inf)
    assert Interval(3.0, 2.5, 3.5) > Interval(2.0, 1.5, 2.4)
    assert not Interval(3.0, 2.5, 3.5) > Interval(2.0, 1.5, 2.6)


def test_dependent_values_do_not_narrow_an_interval():
    """1..5 twice: deviation sqrt(20 / 9), and 2.776 x 1.491 / sqrt(5) = 1.851 where five of them are independent."""
    found = Interval.of([1.0, 2.0, 3.0, 4.0, 5.0] * 2, independent=5)
    assert (found.low, found.high) == pytest.approx((1.149, 4.851), abs=0.02)
    assert Interval.of([1.0, 2.0], independent=1) == Interval(1.5, -inf, inf)
    assert Interval.of([1.0, 2.0], independent=100) == Interval.of([1.0, 2.0])


def test_knowing_the_regime_pays_and_trading_without_knowing_costs():
    """On 600 accounts for 80 days: the oracle, above momentum, above holding, above random; without overlap."""
    config = MarketSettings(episode_length=80)
    earned = {name: profits(evaluate_baseline(name, config, World(), 600, seed=1)) for name in PAID}
    assert earned["oracle"] > earned["momentum"] > Interval(0.0, 0.0, 0.0) > earned["random"]
    assert earned["momentum"].mean < 0.75 * earned["oracle"].mean


def test_buy_and_hold_earns_what_the_underlying_does():
    config = MarketSettings(episode_length=30)
    held, watched = (evaluate_baseline(name, config, World(), 20, seed=2) for name in ("buy_and_hold", "hold"))
    growth = watched.extra["trading_underlying"]
    assert held.extra["trading_profit"] == pytest.approx([100_000 * one for one in growth])
    assert held.returns == pytest.approx([10 * one for one in growth])


def test_all_baselines_trade_the_same_episodes():
    config = MarketSettings(market="brownian", episode_length=5)
    results = {name: evaluate_baseline(name, config, World(), 2, seed=0) for name in TRADERS}
    assert len({tuple(result.extra["trading_underlying"]) for result in results.values()}) == 1
    assert profits(results["hold"]) == profits(results["oracle"]) == Interval(0.0, 0.0, 0.0)
