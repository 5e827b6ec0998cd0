"""Orders, expiry and margin, with numbers worked out by hand; and accounts that balance to a cent."""

import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.account.actions import (
    ACTIONS,
    BEAR_PUT_SPREAD,
    BULL_CALL_SPREAD,
    BUY_CALL,
    BUY_PUT,
    CLOSE_ALL,
    HOLD,
    IRON_CONDOR,
    SELL_CALL,
    SELL_PUT,
    STRADDLE,
    STRANGLE,
)
from lockstep.workloads.trading.account.positions import Positions
from lockstep.workloads.trading.market.chain import Chain
from lockstep.workloads.trading.market.quotes import Quotes
from lockstep.workloads.trading.market.settings import MarketSettings

CPU = torch.device("cpu")
PLAIN = MarketSettings(market="brownian", drift=0.0, half_spread=0.0, spread_slope=0.0, commission=0.0)


def number(value):
    return torch.tensor([value], dtype=torch.float64)


class Desk:
    """One account that trades at prices we choose."""

    def __init__(self, config, spot=100.0, historical=False):
        quotes = Quotes(config, torch.tensor([historical]), CPU)
        self.account, self.spot = Account(config, 1, CPU, quotes), spot
        self.chain = Chain(config, 1, CPU, quotes, constant=True)
        self.config = config
        self.account.restart(torch.ones(1, dtype=torch.bool))

    def order(self, action):
        self.account.trade(torch.tensor([action]), number(self.spot), self.chain)
        return int(self.account.opened)

    def wait(self, days, spot):
        self.spot = spot
        return float(self.account.settle(number(spot), number(self.config.volatility), number(days)))

    @property
    def cash(self):
        return float(self.account.cash)

    @property
    def value(self):
        return float(self.account.value)


def test_a_call_at_the_money_costs_what_black_scholes_says():
    """30 days, 25 %: 100 x (2 N(0.0358) - 1) = 2.8587 dollars, so 2000 dollars buy 6 contracts."""
    desk = Desk(PLAIN)
    assert desk.order(BUY_CALL) == 6
    assert desk.cash == pytest.approx(100_000 - 6 * 285.87, abs=0.1)


def test_a_simulated_contract_is_for_as_many_dollars_whatever_the_price():
    """Six calls at 285.87 dollars each, as at a price of 100; the position then moves with 60 units, not with 600."""
    desk = Desk(PLAIN, spot=1000.0)
    assert desk.order(BUY_CALL) == 6
    assert desk.cash == pytest.approx(100_000 - 6 * 285.87, abs=0.1)
    desk.wait(30.0, 1100.0)
    assert desk.value == pytest.approx(100_000 - 6 * 285.87 + 60 * 100.0, abs=0.1)


PAYOFF_AT = (80.0, 92.0, 97.0, 100.0, 103.0, 108.0, 120.0)
PAYOFFS = {
    BUY_CALL: (0, 0, 0, 0, 3, 8, 20),
    BUY_PUT: (20, 8, 3, 0, 0, 0, 0),
    SELL_CALL: (0, 0, 0, 0, 0, -3, -15),
    SELL_PUT: (-15, -3, 0, 0, 0, 0, 0),
    BULL_CALL_SPREAD: (0, 0, 0, 0, 3, 5, 5),
    BEAR_PUT_SPREAD: (5, 5, 3, 0, 0, 0, 0),
    IRON_CONDOR: (-5, -3, 0, 0, 0, -3, -5),
    STRADDLE: (20, 8, 3, 0, 3, 8, 20),
    STRANGLE: (15, 3, 0, 0, 0, 3, 15),
}


@pytest.mark.parametrize("action", PAYOFFS, ids=lambda action: ACTIONS[action])
def test_each_position_pays_its_exercise_value_at_expiry(action):
    for spot, payoff in zip(PAYOFF_AT, PAYOFFS[action], strict=True):
        desk = Desk(PLAIN)
        contracts = desk.order(action)
        assert contracts >= 1
        after_purchase = desk.cash
        desk.wait(30.0, spot)
        assert not desk.account.positions.open.any()
        assert desk.cash - after_purchase == pytest.approx(100 * contracts * payoff, abs=1e-6)
        assert desk.value == desk.cash
        assert float(desk.account.closed) == 1


def test_a_position_expires_at_the_first_close_after_its_last_day():
    desk = Desk(PLAIN)
    desk.order(BUY_CALL)
    desk.wait(29.0, 100.0)
    assert desk.account.positions.open.any()
    desk.wait(3.0, 110.0)
    assert not desk.account.positions.open.any()
    assert float(desk.account.won) == 1


def test_holding_changes_nothing_and_every_action_but_two_opens_a_position():
    for action in range(len(ACTIONS)):
        desk = Desk(MarketSettings())
        opened = desk.order(action)
        assert (opened > 0) == (action not in (HOLD, CLOSE_ALL))
        assert (desk.cash == 100_000) == (action in (HOLD, CLOSE_ALL))


def test_spread_and_commission_are_paid_both_ways():
    """6 calls at 2.8587: 2 % of 1715.2 and 6 x 0.65 when bought, the same when sold at an unmoved price."""
    config = MarketSettings(market="brownian", drift=0.0)
    desk = Desk(config)
    assert desk.order(BUY_CALL) == 6
    cost = 0.02 * 6 * 285.87 + 6 * 0.65
    assert float(desk.account.costs) == pytest.approx(cost, abs=0.01)
    assert desk.wait(0.0, 100.0) == pytest.approx(-cost, abs=0.01)
    desk.order(CLOSE_ALL)
    desk.wait(0.0, 100.0)
    assert desk.value == pytest.approx(100_000 - 2 * cost, abs=0.02)
    assert float(desk.account.realised) == pytest.approx(-2 * cost, abs=0.02)
    assert float(desk.account.closed) == 1 and float(desk.account.won) == 0


def test_no_more_positions_than_allowed():
    desk = Desk(MarketSettings(max_positions=2))
    assert [desk.order(STRADDLE) > 0 for _ in range(3)] == [True, True, False]
    desk.wait(0.0, 100.0)
    desk.order(CLOSE_ALL)
    assert desk.order(STRADDLE) > 0


def test_a_position_is_at_least_one_contract_and_never_more_than_the_cash_allows():
    """A call on 1000 dollars costs 2858.7: more than position_size of 2000, but there is money for one."""
    real = replace(PLAIN, interest=0.0, skew=0.0)
    assert Desk(real, spot=1000.0, historical=True).order(BUY_CALL) == 1
    poor = Desk(MarketSettings(initial_capital=1000.0, position_size=1.0), spot=1000.0, historical=True)
    assert poor.order(BUY_CALL) == 0
    assert poor.cash == 1000.0


def test_the_margin_of_a_short_option_is_its_price_and_a_fifth_of_the_underlying_less_the_out_of_the_money_amount():
    """A call 5 % above 100: 100 x (price + 20 - 5); an order may tie up 2000, and each takes 1500 net: one contract."""
    desk = Desk(PLAIN)
    assert desk.order(SELL_CALL) == 1
    received = desk.cash - 100_000
    assert received > 0
    desk.wait(0.0, 100.0)
    assert float(desk.account.positions.margin.sum()) == pytest.approx(received + 1500.0, abs=1e-6)
    desk.wait(0.0, 106.0)
    price = float(-desk.account.positions.worth.sum())
    assert float(desk.account.positions.margin.sum()) == pytest.approx(price + 2120.0, abs=1e-6)


def test_a_condor_ties_up_the_most_it_can_lose():
    """2000 dollars at 500 less the premium each, so at least four."""
    desk = Desk(PLAIN)
    contracts = desk.order(IRON_CONDOR)
    assert contracts >= 4
    desk.wait(0.0, 100.0)
    assert float(desk.account.positions.margin.sum()) == pytest.approx(500.0 * contracts)


def test_tied_up_cash_buys_nothing():
    config = MarketSettings(position_size=1.0, market="brownian")
    desk = Desk(config)
    assert desk.order(SELL_PUT) > 0
    desk.wait(0.0, 100.0)
    free = desk.cash - float(desk.account.positions.margin.sum())
    assert 0 <= free < 1700
    desk.order(BUY_CALL)
    assert desk.cash - float(desk.account.positions.margin.sum()) >= 0
    desk.wait(0.0, 100.0)
    assert desk.order(SELL_CALL) == 0


def test_a_margin_call_closes_everything():
    config = MarketSettings(position_size=1.0, market="brownian")
    desk = Desk(config)
    sold = desk.order(SELL_CALL)
    desk.wait(1.0, 100.0)
    assert desk.account.positions.open.any()
    desk.wait(1.0, 115.0)
    assert not desk.account.positions.open.any()
    assert desk.cash == desk.value
    assert float(desk.account.costs) > 0.65 * sold
    assert float(desk.account.realised) == pytest.approx(desk.cash - 100_000, abs=1e-6)


def test_greeks_of_a_straddle_are_those_of_its_legs():
    """Delta of a call and a put at the money without interest: 2 N(0.0358) - 1 = 0.0286 each contract."""
    desk = Desk(PLAIN)
    contracts = desk.order(STRADDLE)
    desk.wait(0.0, 100.0)
    delta, gamma, theta, vega, _ = desk.account.positions.greeks[0].tolist()
    assert delta == pytest.approx(100 * contracts * 0.0286, rel=1e-2)
    assert gamma > 0 and vega > 0 and theta < 0
    desk.wait(30.0, 100.0)
    assert not desk.account.positions.greeks.any()


def test_pricing_only_existing_legs_gives_the_same_values():
    config = MarketSettings(market="regime", position_size=0.1)
    # The last account trades real prices, the others simulated ones.
    quotes = Quotes(config, torch.tensor([False, False, True]), CPU)
    some, all_ = (Positions(config, 3, CPU, quotes, sparse=sparse) for sparse in (True, False))
    account, chain = Account(config, 3, CPU, quotes), Chain(config, 3, CPU, quotes)
    account.restart(torch.ones(3, dtype=torch.bool))
    spot, vol = torch.tensor([90.0, 100.0, 110.0]).double(), torch.tensor([0.2, 0.3, 0.4]).double()
    chain.quote(vol)
    for actions in ([SELL_CALL, IRON_CONDOR, STRADDLE], [STRANGLE, SELL_PUT, HOLD], [BEAR_PUT_SPREAD, HOLD, HOLD]):
        account.trade(torch.tensor(actions), spot, chain)
        account.settle(spot, vol, torch.ones(3).double())
    for positions in (some, all_):
        for name, tensor in positions.tensors().items():
            tensor.copy_(account.positions.tensors()[name])
        positions.mark(spot * 1.03, vol)
    assert some.greeks.abs().sum() > 0 and some.margin.sum() > 0
    for name in ("worth", "gross", "exit_cost", "margin", "greeks"):
        torch.testing.assert_close(getattr(some, name), getattr(all_, name), atol=1e-9, rtol=1e-12)


# The books, kept a second time in plain Python.

LEGS = {
    BUY_CALL: [(1, "call", 1.0)],
    BUY_PUT: [(1, "put", 1.0)],
    SELL_CALL: [(-1, "call", 1.05)],
    SELL_PUT: [(-1, "put", 0.95)],
    BULL_CALL_SPREAD: [(1, "call", 1.0), (-1, "call", 1.05)],
    BEAR_PUT_SPREAD: [(1, "put", 1.0), (-1, "put", 0.95)],
    IRON_CONDOR: [(-1, "put", 0.95), (1, "put", 0.9), (-1, "call", 1.05), (1, "call", 1.1)],
    STRADDLE: [(1, "call", 1.0), (1, "put", 1.0)],
    STRANGLE: [(1, "call", 1.05), (1, "put", 0.95)],
}


def normal(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


class PlainBooks:
    """The same rules, one option at a time; `explained` is the value by marked moves and costs alone."""

    def __init__(self, config):
        self.config, self.cash, self.positions = config, config.initial_capital, []
        self.explained = config.initial_capital

    def price(self, kind, spot, strike, days, vol):
        if days <= 0:
            return max(spot - strike, 0.0) if kind == "call" else max(strike - spot, 0.0)
        sigma = vol + self.config.skew * abs(1 - spot / strike)
        years, rate = days / 365, self.config.interest
        d1 = (math.log(spot / strike) + (rate + sigma**2 / 2) * years) / (sigma * math.sqrt(years))
        d2 = d1 - sigma * math.sqrt(years)
        present = strike * math.exp(-rate * years)
        if kind == "call":
            return spot * normal(d1) - present * normal(d2)
        return present * normal(-d2) - spot * normal(-d1)

    def spread(self, spot, strike):
        return self.config.half_spread + self.config.spread_slope * abs(1 - spot / strike)

    def worth(self, position, spot, vol):
        return sum(
            100 * side * position["contracts"] * self.price(kind, spot, strike, position["days"], vol)
            for side, kind, strike in position["legs"]
        )

    def exit_cost(self, position, spot, vol):
        return position["contracts"] * sum(
            100 * self.price(kind, spot, strike, position["days"], vol) * self.spread(spot, strike)
            + self.config.commission
            for _, kind, strike in position["legs"]
        )

    def margin(self, position, spot, vol):
        if position["action"] == IRON_CONDOR:
            return 100 * position["contracts"] * 0.05 * position["spot"]
        if position["action"] not in (SELL_CALL, SELL_PUT):
            return 0.0
        _, kind, strike = position["legs"][0]
        away = max(strike - spot, 0) if kind == "call" else max(spot - strike, 0)
        rest = max(self.config.margin * spot - away, self.config.margin * spot / 2)
        return 100 * position["contracts"] * (self.price(kind, spot, strike, position["days"], vol) + rest)

    def sell(self, position, spot, vol):
        cost = self.exit_cost(position, spot, vol)
        self.cash += self.worth(position, spot, vol) - cost
        self.explained -= cost
        self.positions.remove(position)

    def order(self, action, spot, vol):
        if action == CLOSE_ALL:
            for position in list(self.positions):
                self.sell(position, spot, vol)
        if action not in LEGS or len(self.positions) == self.config.max_positions:
            return
        legs = [(side, kind, part * spot) for side, kind, part in LEGS[action]]
        one = {"action": action, "legs": legs, "contracts": 1, "days": self.config.expiry_days, "spot": spot}
        cost = self.exit_cost(one, spot, vol)
        price = self.worth(one, spot, vol) + cost
        needed = price + self.margin(one, spot, vol)
        free = self.cash - sum(self.margin(position, spot, vol) for position in self.positions)
        if free < needed:
            return
        budget = min(free, self.config.position_size * self.config.initial_capital)
        contracts = max(math.floor(budget / needed), 1)
        self.positions.append(one | {"contracts": contracts})
        self.cash -= contracts * price
        self.explained -= contracts * cost

    def wait(self, days, before, spot, vol_before, vol):
        for position in list(self.positions):
            old = self.worth(position, before, vol_before)
            position["days"] -= days
            self.explained += self.worth(position, spot, vol) - old
            if position["days"] <= 0:
                self.cash += self.worth(position, spot, vol)
                self.positions.remove(position)
        margins = sum(self.margin(position, spot, vol) for position in self.positions)
        if margins > 0 and self.cash < margins:
            for position in list(self.positions):
                self.sell(position, spot, vol)

    def value(self, spot, vol):
        return self.cash + sum(self.worth(position, spot, vol) for position in self.positions)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    expiry=st.sampled_from([7, 14, 30]),
    size=st.sampled_from([0.02, 0.3, 0.9]),
    places=st.integers(1, 5),
)
def test_the_books_balance_to_a_cent_over_random_actions(seed, expiry, size, places):
    """Cash and value equal books kept in plain Python, and value moves by marked moves and costs alone."""
    config = MarketSettings(expiry_days=expiry, position_size=size, max_positions=places)
    dice, count = random.Random(seed), 4
    # As on real days, where options are priced by a formula that the books can repeat.
    quotes = Quotes(config, torch.ones(count, dtype=torch.bool), CPU)
    account, chain = Account(config, count, CPU, quotes), Chain(config, count, CPU, quotes)
    account.restart(torch.ones(count, dtype=torch.bool))
    books = [PlainBooks(config) for _ in range(count)]
    spots, vols = [dice.uniform(20, 400) for _ in books], [dice.uniform(0.1, 0.6) for _ in books]
    done = set()
    for _ in range(60):
        actions = [dice.choice([*range(11), CLOSE_ALL] if dice.random() < 0.5 else range(1, 10)) for _ in books]
        days = [dice.choice([1.0, 1.0, 1.0, 3.0]) for _ in books]
        moved = [spot * math.exp(dice.gauss(0, 0.04)) for spot in spots]
        changed = [min(max(vol * math.exp(dice.gauss(0, 0.1)), 0.08), 1.5) for vol in vols]
        chain.quote(torch.tensor(vols, dtype=torch.float64))
        account.trade(torch.tensor(actions), torch.tensor(spots, dtype=torch.float64), chain)
        account.settle(*(torch.tensor(values, dtype=torch.float64) for values in (moved, changed, days)))
        for i, book in enumerate(books):
            book.order(actions[i], spots[i], vols[i])
            book.wait(days[i], spots[i], moved[i], vols[i], changed[i])
            assert float(account.cash[i]) == pytest.approx(book.cash, abs=0.01)
            assert float(account.value[i]) == pytest.approx(book.value(moved[i], changed[i]), abs=0.01)
            assert float(account.value[i]) == pytest.approx(book.explained, abs=0.01)
            assert int(account.positions.open[i].sum()) == len(book.positions)
        done.update(actions)
        spots, vols = moved, changed
    assert done == set(range(11))
