"""The chain: quotes around Black-Scholes prices, and the rows of an observation."""

import pytest
import torch

from lockstep.workloads.trading.account.actions import LEGS, ActionTable
from lockstep.workloads.trading.market.chain import COLUMNS, ROWS, Chain, half_spread
from lockstep.workloads.trading.market.pricing import black_scholes
from lockstep.workloads.trading.market.quotes import Quotes
from lockstep.workloads.trading.market.settings import EXPIRIES, MONEYNESS, MarketSettings

CPU = torch.device("cpu")
F64 = torch.float64
PRICES = ["strike", "bid", "ask", "last", "volume", "open_interest"]
GREEKS = ["implied_vol", "delta", "gamma", "theta", "vega", "rho"]
NAMES = [*PRICES, *GREEKS, "is_call", "days_to_expiry", "mid"]


def quoted(volatility=0.3, **settings):
    """A chain on real days, whose volatility moves."""
    config = MarketSettings(**settings)
    chain = Chain(config, 1, CPU, Quotes(config, torch.ones(1, dtype=torch.bool), CPU))
    chain.quote(torch.tensor([volatility], dtype=F64))
    return chain


def test_the_ladder_holds_the_prices_of_the_traded_expiry():
    strike = torch.tensor(MONEYNESS, dtype=F64)
    sigma = 0.3 + 0.1 * (1 - 1 / strike).abs()
    sheet = black_scholes(1.0, strike, torch.tensor(21.0, dtype=F64), sigma, 0.05)
    chain = quoted(expiry_days=21)
    torch.testing.assert_close(chain.ladder[0], torch.cat((sheet.call, sheet.put)), atol=1e-12, rtol=0)


def test_half_spreads_are_two_percent_at_the_money_and_grow_away_from_it():
    """2 % + 1 % x |1 - price/strike|: at 90 % of the price 0.02 + 0.01 x 0.1111."""
    spread = quoted().spread[0]
    assert float(spread[2]) == 0.02 and float(spread[0]) == pytest.approx(0.0211111)
    assert torch.equal(spread[:5], spread[5:])
    assert float(half_spread(MarketSettings(), torch.tensor(1.5))) == pytest.approx(0.025)


def test_rows_show_four_contracts_of_each_expiry():
    rows = quoted().rows(torch.ones(1), torch.zeros(1))
    assert rows.shape == (1, ROWS, COLUMNS) and rows.dtype == torch.float32
    column = {name: rows[0, :, place] for place, name in enumerate(NAMES)}
    assert column["days_to_expiry"].mul(45).round().int().tolist() == [days for days in EXPIRIES for _ in range(4)]
    assert column["is_call"].tolist() == [1, 0, 1, 0] * 5
    assert [round(value, 3) for value in column["strike"].tolist()] == [0, 0, 0.5, -0.5] * 5
    assert (column["bid"] < column["mid"]).all() and (column["mid"] < column["ask"]).all()
    assert torch.equal(column["last"], column["mid"])
    assert (column["delta"].sign() == column["is_call"] * 2 - 1).all()
    assert (column["gamma"] > 0).all() and (column["vega"] > 0).all() and (column["theta"] < 0).all()
    assert float(rows.abs().max()) < 3


def test_the_last_price_is_the_price_at_the_open():
    """The price rose 1 % since the open: a call was cheaper then, a put dearer."""
    chain = quoted()
    rows = chain.rows(torch.ones(1), torch.tensor([-0.01]))[0]
    calls = rows[:, NAMES.index("is_call")] == 1
    change = rows[:, NAMES.index("last")] - rows[:, NAMES.index("mid")]
    assert (change[calls] < 0).all() and (change[~calls] > 0).all()


def test_a_constant_volatility_is_quoted_once_for_all_accounts():
    config = MarketSettings(market="brownian", volatility=0.3)
    quotes = Quotes(config, torch.zeros(3, dtype=torch.bool), CPU)
    constant = Chain(config, 3, CPU, quotes, constant=True)
    each = Chain(config, 3, CPU, quotes)
    each.quote(torch.full((3,), 0.3, dtype=F64))
    ratio, since_open = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0.0, 0.01, -0.02])
    torch.testing.assert_close(constant.rows(ratio, since_open), each.rows(ratio, since_open))
    torch.testing.assert_close(constant.ladder.expand(3, -1), each.ladder)


def test_the_action_table_lists_the_legs_of_every_action():
    table = ActionTable.on(CPU)
    for action, legs in LEGS.items():
        assert int(table.legs[action]) == len(legs)
        for place, (side, contract) in enumerate(legs):
            assert float(table.side[action, place]) == side
            assert int(table.contract[action, place]) == contract
            assert bool(table.call[action, place]) == (contract < 5)
            assert float(table.moneyness[action, place]) == MONEYNESS[contract % 5]
    assert not table.side[[0, 10]].any()
