"""Simulated prices have the documented moments, and depend on (seed, account, day) alone."""

import math

import pytest
import torch

from lockstep.workloads.trading.market.paths import Dice, Paths
from lockstep.workloads.trading.market.settings import MarketSettings

DAILY = 0.25 / math.sqrt(365)


def simulate(config, accounts=2000, days=120, seed=3):
    """(D, E) log returns, regimes and volatilities."""
    paths, dice = Paths(config), Dice(seed, torch.arange(accounts), 16)
    clock = torch.zeros(accounts, dtype=torch.int64)
    regime = paths.first_regime(dice.next(clock))
    volatility = torch.full((accounts,), config.volatility, dtype=torch.float64)
    returns, regimes, volatilities = [], [], []
    for _ in range(days):
        clock += 1
        regimes.append(regime)
        volatilities.append(volatility)
        day = paths.day(volatility, regime, dice.next(clock))
        assert (day.high >= torch.maximum(day.close, torch.ones(()))).all()
        assert (day.low <= torch.minimum(day.close, torch.ones(()))).all()
        assert (day.volume > 0).all()
        returns.append(day.close.log())
        regime, volatility = day.regime, day.volatility
    return torch.stack(returns), torch.stack(regimes), torch.stack(volatilities)


def test_numbers_drawn_ahead_equal_those_drawn_day_by_day():
    index = torch.tensor([5, 17, 0])
    ahead, single = Dice(9, index, ahead=16), Dice(9, index)
    for day in range(40):
        clock = torch.full((3,), day)
        for expected, found in zip(vars(single.next(clock)).values(), vars(ahead.next(clock)).values(), strict=True):
            assert torch.equal(expected, found)


def test_an_accounts_numbers_do_not_depend_on_the_others_in_the_batch():
    together, alone = Dice(9, torch.arange(50)), Dice(9, torch.tensor([33]))
    clock = torch.full((50,), 7)
    a, b = together.next(clock), alone.next(clock[:1])
    assert torch.equal(a.price[33:34], b.price) and torch.equal(a.low[33:34], b.low)
    assert not torch.equal(a.price, Dice(10, torch.arange(50)).next(clock).price)


def test_the_numbers_are_independent_standard_normals_and_uniforms():
    noise = Dice(1, torch.arange(40_000)).next(torch.zeros(40_000, dtype=torch.int64))
    columns = torch.stack(list(vars(noise).values()))
    assert torch.allclose(columns[:4].mean(1), torch.zeros(4, dtype=torch.float64), atol=0.03)
    assert torch.allclose(columns[:4].std(1), torch.ones(4, dtype=torch.float64), atol=0.02)
    assert torch.allclose(columns[4:].mean(1), torch.full((4,), 0.5, dtype=torch.float64), atol=0.01)
    off_diagonal = torch.corrcoef(columns) - torch.eye(8, dtype=torch.float64)
    assert float(off_diagonal.abs().max()) < 0.03
    assert float(columns[4:].min()) > 0 and float(columns[4:].max()) <= 1


@pytest.mark.parametrize("kind", ["brownian", "jumps"])
def test_volatility_and_growth_match_the_settings(kind):
    returns, _, _ = simulate(MarketSettings(market=kind, drift=0.5))
    assert float(returns.std()) == pytest.approx(DAILY, rel=0.02)
    growth = returns.sum(0).exp().mean().log()
    assert float(growth) == pytest.approx(0.5 * 120 / 365, abs=0.015)


def test_jumps_have_fat_tails_and_brownian_motion_does_not():
    def kurtosis(kind):
        returns, _, _ = simulate(MarketSettings(market=kind), accounts=500)
        z = (returns - returns.mean()) / returns.std()
        return float(z.pow(4).mean())

    assert kurtosis("brownian") == pytest.approx(3.0, abs=0.15)
    assert kurtosis("jumps") > 5.0


def test_stochastic_volatility_returns_to_its_mean_and_rises_when_prices_fall():
    returns, _, volatilities = simulate(MarketSettings(market="stochastic"), accounts=1000)
    logs = volatilities.log()
    assert float(logs[100:].mean()) == pytest.approx(math.log(0.25), abs=0.03)
    assert float(logs[100:].std()) == pytest.approx(0.08 / math.sqrt(1 - 0.95**2), rel=0.05)
    together = torch.corrcoef(torch.stack((returns[:-1].flatten(), logs.diff(dim=0).flatten())))
    assert float(together[0, 1]) < -0.6


def test_regimes_have_the_configured_drift_and_length_and_are_hidden_in_one_bar():
    config = MarketSettings(regime_length=40.0)
    returns, regimes, _ = simulate(config)
    rising = regimes > 0
    assert 0.45 < float(rising.double().mean()) < 0.55
    distance = float(returns[rising].mean() - returns[~rising].mean())
    assert distance == pytest.approx(2 * 0.2 * DAILY, rel=0.05)
    assert float((regimes[1:] != regimes[:-1]).double().mean()) == pytest.approx(1 / 40, rel=0.1)
    guessed = float((torch.sign(returns) == regimes).double().mean())
    assert guessed == pytest.approx(0.579, abs=0.01)
