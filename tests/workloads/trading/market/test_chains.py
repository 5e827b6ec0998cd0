"""Recorded option chains: what is read, which contract an order means, and what it is worth."""

from datetime import date, timedelta

import numpy as np
import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market import quotes_file
from lockstep.workloads.trading.market.chains_on_device import ChainsOnDevice
from lockstep.workloads.trading.market.data_record import data_record
from lockstep.workloads.trading.market.history import WARM_UP, load_history
from lockstep.workloads.trading.market.settings import MarketSettings

FIRST = date(2015, 1, 5)
COUNT = 120
START = WARM_UP + 5
"""The bar at which the accounts of these tests begin."""
HEADER = "date,symbol,expiry,strike,type,bid,ask"
CALL, PUT = "SPY,{},100,C", "SPY,{},100,P"


def day(number):
    """The market is open every day but Saturday and Sunday."""
    return FIRST + timedelta(days=number // 5 * 7 + number % 5)


EXPIRY = day(START + 20)  # 28 days later.


def bars(folder, closes=None, header="date,symbol,open,high,low,close,volume", adjusted=""):
    closes = np.full(COUNT, 100.0) if closes is None else closes
    lines = [f"{day(n)},SPY,{c},{c},{c},{c},1000{adjusted}" for n, c in enumerate(closes)]
    (folder / "bars.csv").write_text("\n".join([header, *lines]) + "\n")
    return str(folder / "bars.csv")


def quote(number, strike, kind, bid, ask, expiry=EXPIRY):
    return f"{day(number)},SPY,{expiry},{strike},{kind},{bid},{ask}"


def ladder(number, expiry=EXPIRY):
    """Calls and puts at 90 to 110, a dollar wide around 3 + the distance in fives, away from the money less."""
    lines = []
    for strike in (90, 95, 100, 105, 110):
        away = (strike - 100) / 5
        lines += [quote(number, strike, "C", 4 - away, 5 - away, expiry)]
        lines += [quote(number, strike, "P", 4 + away, 5 + away, expiry)]
    return lines


def chains(folder, lines, header=HEADER):
    (folder / "chains.csv").write_text("\n".join([header, *lines]) + "\n")
    return str(folder / "chains.csv")


def settings(folder, lines, closes=None, **more):
    options = {"validation_part": 0.0, "episode_length": 30, "commission": 0.0}
    return MarketSettings(data=bars(folder, closes), chains=chains(folder, lines), **options | more)


def env_at(market, row=START, accounts=1):
    env = TradingEnv(market, torch.arange(accounts), 0, torch.device("cpu"))
    env.start_at(torch.full((accounts,), row))
    return env


def act(env, *names):
    return env.advance(torch.tensor([ACTIONS.index(name) for name in names]))


def test_a_call_is_bought_at_the_ask_marked_at_mid_and_sold_at_the_bid(tmp_path):
    """Bought at 5, a day later quoted 6 to 8, two days later 5 to 6: worth 7, then sold for 5."""
    later = [quote(START + 1, 100, "C", 6, 8), quote(START + 2, 100, "C", 5, 6)]
    env = env_at(settings(tmp_path, [*ladder(START), *later]))
    act(env, "buy_call")
    contracts = float(env.account.opened[0])
    assert contracts == 4  # 2,000 dollars buy four at 500.
    assert float(env.account.cash[0]) == pytest.approx(100_000 - 4 * 500)
    assert float(env.account.value[0]) == pytest.approx(100_000 - 4 * 500 + 4 * 700)
    assert float(env.account.positions.days[0, 0]) == (EXPIRY - day(START + 1)).days
    act(env, "hold")
    assert float(env.account.value[0]) == pytest.approx(98_000 + 4 * 550)
    act(env, "close_all_positions")
    assert float(env.account.cash[0]) == pytest.approx(98_000 + 4 * 500)


def test_a_put_is_sold_at_the_bid_and_expires_at_its_exercise_value(tmp_path):
    """The put at 95 brings 3; on its last day the price is 93, so it costs 2, whatever was quoted then."""
    closes = np.full(COUNT, 100.0)
    closes[START + 20 :] = 93.0
    lines = [*ladder(START), quote(START + 19, 95, "P", 1, 2), quote(START + 20, 95, "P", 8, 9)]
    env = env_at(settings(tmp_path, lines, closes))
    act(env, "sell_put")
    contracts = float(env.account.opened[0])
    assert contracts >= 1
    assert float(env.account.cash[0]) == pytest.approx(100_000 + 300 * contracts)
    for _ in range(18):
        act(env, "hold")
    assert float(env.account.positions.worth[0, 0]) == pytest.approx(-150 * contracts)
    act(env, "hold")
    assert not env.account.positions.open.any()
    assert float(env.account.value[0]) == pytest.approx(100_000 + (300 - 200) * contracts)


def test_a_day_without_a_quote_is_marked_by_the_model_and_told(tmp_path):
    lines = [*ladder(START), quote(START + 2, 100, "C", 6, 8)]
    market = settings(tmp_path, lines)
    env, plain = env_at(market), env_at(MarketSettings(**vars(market) | {"chains": "", "expiry_days": 30}))
    act(env, "buy_call")
    days = torch.tensor((EXPIRY - day(START + 1)).days, dtype=torch.float64)
    one = torch.tensor(100.0, dtype=torch.float64)
    model = plain.market.quotes.legs(one, plain.market.volatility[0], one, days, one, torch.tensor([0]))
    assert float(env.account.positions.worth[0, 0]) == pytest.approx(400 * float(model.call))
    notes = load_history(market).notes
    # Ten contracts for the nineteen days between the first and their last; one of these days has a quote of one.
    assert any("on 189 of 190 days of the contracts that can be held there is no quote" in note for note in notes)


def test_the_nearest_listed_contract_is_traded_and_none_that_is_too_far(tmp_path):
    """A call at 101 is near enough to 100, the next one at 108 is not to 105: no spread, but a call."""
    lines = [quote(START, 101, "C", 2, 3), quote(START, 108, "C", 1, 2), quote(START, 99, "P", 2, 3)]
    env = env_at(settings(tmp_path, lines), accounts=3)
    act(env, "buy_call", "bull_call_spread", "straddle")
    assert env.account.opened.tolist()[1] == 0 and env.account.opened[0] > 0 and env.account.opened[2] > 0
    assert env.account.positions.strike[0, 0, 0] == 101
    assert env.account.positions.strike[2, 0, :2].tolist() == [101, 99]


def test_an_iron_condor_ties_up_its_wider_side(tmp_path):
    """Puts at 95 and 91, calls at 105 and 110: 5 dollars wide, not 4."""
    lines = [line for line in ladder(START) if ",90,P" not in line] + [quote(START, 91, "P", 2.5, 3)]
    env = env_at(settings(tmp_path, lines))
    act(env, "iron_condor")
    assert float(env.account.opened[0]) > 0
    assert float(env.account.positions.wing[0, 0]) == pytest.approx(500 * float(env.account.opened[0]))


def test_bad_quotes_are_left_out_and_counted(tmp_path):
    bad = [
        quote(START, 100, "C", 6, 5),
        quote(START, 100, "C", -1, 5),
        quote(START, 100, "C", "", 5),
        quote(START, 100, "C", 0, 0),
        quote(START, 100, "C", 4, 5, expiry=day(START)),
        quote(START, 100, "C", 4, 5, expiry="2016-01-15"),
        quote(START, 100, "C", 3, 9),  # A second quote of a contract, with a wider spread.
        f"{day(START) + timedelta(days=5)},SPY,{EXPIRY},100,C,4,5",  # A Saturday.
        f"{day(START)},QQQ,{EXPIRY},100,C,4,5",
        quote(START, 130, "C", 0, 0.5),
    ]
    history = load_history(settings(tmp_path, [*bad, *ladder(START)]))
    (told,) = [note for note in history.notes if "left out" in note]
    for reason in ("1 crossed", "1 negative", "1 without bid or ask", "1 with ask 0", "1 expired", "1 repeated"):
        assert reason in told, told
    for reason in ("1 on days without a bar", "1 of other symbols", "1 with more than 72 days", "1 with bid 0 are for"):
        assert reason in told, told
    assert len(history.chains.key) == 11
    assert history.chains.bid.max() == 6  # The narrow quote of the call at 100 stayed.


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (
            "underlying_symbol,quote_date,root,expiration,strike,option_type,bid_1545,ask_1545,bid_eod,ask_eod",
            "^SPY,{day},SPY,{expiry},{strike},{kind},1,9,{bid},{ask}",
        ),
        ("date,act_symbol,expiration,strike,call_put,bid,ask,vol", "{day},SPY,{expiry},{strike},{name},{bid},{ask},.2"),
        (
            "underlying,underlying_last,type,expiration,quotedate,strike,bid,ask",
            "SPY,100,{name},{expiry},{day},{strike},{bid},{ask}",
        ),
    ],
)
def test_columns_of_vendors_are_found_and_shown(tmp_path, header, line):
    lines = []
    for row in ladder(START):
        when, _, expiry, strike, kind, bid, ask = row.split(",")
        name = {"C": "Call", "P": "put"}[kind]
        lines.append(line.format(day=when, expiry=expiry, strike=strike, kind=kind, name=name, bid=bid, ask=ask))
    (tmp_path / "plain").mkdir()
    plain = load_history(settings(tmp_path / "plain", ladder(START)))
    found = load_history(
        MarketSettings(data=bars(tmp_path), chains=chains(tmp_path, lines, header), validation_part=0.0)
    )
    assert np.array_equal(found.chains.key, plain.chains.key) and np.array_equal(found.chains.bid, plain.chains.bid)
    assert any(note.startswith("chains.csv: date = ") for note in found.notes)
    assert not any(note.startswith("chains.csv: date = ") for note in plain.notes)


def test_saturday_expiries_end_at_the_close_of_friday(tmp_path):
    saturday = day(START + 19) + timedelta(days=(5 - day(START + 19).weekday()))
    env = env_at(settings(tmp_path, ladder(START, saturday)))
    act(env, "buy_call")
    assert float(env.account.positions.days[0, 0]) == (saturday - timedelta(days=1) - day(START + 1)).days


def test_bars_are_not_adjusted_beside_chains(tmp_path):
    """Halved by the adjusted close, 100 would be 50, and no strike near it."""
    header = "date,symbol,open,high,low,close,volume,adj close"
    market = MarketSettings(
        data=bars(tmp_path, header=header, adjusted=",50"), chains=chains(tmp_path, ladder(START)), validation_part=0.0
    )
    history = load_history(market)
    assert history.bars[0, 3] == 100
    assert any("is not used: strikes are not adjusted" in note for note in history.notes)


@pytest.mark.parametrize(
    ("lines", "header", "expected"),
    [
        (["x"], "date,symbol,expiry,strike,type,bid", "has no column ask"),
        ([quote(START, 100, "X", 4, 5)], HEADER, "row 2, column type"),
        ([quote(START, "1e9", "C", 4, 5)], HEADER, "out of range"),
        ([quote(START, 0, "C", 4, 5)], HEADER, "a strike must be above 0"),
        ([quote(START, 100, "C", "1_0", 5)], HEADER, "must be a finite number"),
        ([quote(START, 100, "C", 4, 5, expiry="soon")], HEADER, "column expiry"),
        ([quote(START, 100, "C", 6, 5)], HEADER, "has no usable quote of SPY"),
        ([quote(START, 150, "C", 6, 7)], HEADER, "near the price and the expiry"),
        ([quote(START, 100, "C", 6, 7) + ",400"], HEADER + ",underlying_price", "not adjusted for splits"),
        ([], HEADER, "has no usable quote of SPY"),
        (["\x1b[31m" + quote(START, 100, "C", 6, 7)], HEADER, "column date"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, lines, header, expected):
    market = MarketSettings(data=bars(tmp_path), chains=chains(tmp_path, lines, header), validation_part=0.0)
    with pytest.raises(UserError) as refused:
        load_history(market)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value) and "\x1b" not in str(refused.value)


def test_more_quotes_than_there_is_room_for_are_refused(tmp_path, monkeypatch):
    saturday = FIRST + timedelta(days=5)
    unused = [f"{saturday},SPY,{EXPIRY},{strike},C,1,2" for strike in range(90, 110)]
    monkeypatch.setattr(quotes_file, "_MOST_QUOTES", 10)
    # Quotes of a day without a bar are not kept.
    assert load_history(settings(tmp_path, [*unused, *ladder(START)])).chains is not None
    with pytest.raises(UserError, match=r"row 12: exceeds the limit of 10 quotes of all files; choose fewer --symbols"):
        load_history(settings(tmp_path, [*ladder(START), quote(START, 115, "C", 1, 2)]))


def test_chains_without_bars_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"chains .* there is none; add --data"):
        MarketSettings(chains=chains(tmp_path, ladder(START))).validate()


def test_observations_show_the_recorded_quotes(tmp_path):
    """The fourth expiry of the guide's five is the nearest to 28 days: its first row is the call at the money."""
    env = env_at(settings(tmp_path, [*ladder(START), *ladder(START + 1)]))
    rows = env.chain.rows(torch.ones(1), torch.zeros(1))[0]
    strike, bid, ask = rows[12, :3].tolist()
    assert (strike, bid, ask) == pytest.approx((0.0, 10 * 0.04, 10 * 0.05))
    assert rows[12, 13] == pytest.approx(28 / 45)
    # The put 5 % below, and a volatility that gives the recorded price.
    assert rows[15, :3].tolist() == pytest.approx([-0.5, 10 * 0.03, 10 * 0.04])
    assert 0.3 < float(rows[12, 6]) < 0.5
    # 7 days: 28 are too far from it.
    assert not rows[0, :3].any()


def test_sparse_and_dense_marks_agree_and_a_state_continues(tmp_path):
    lines = [line for number in range(START, START + 20) for line in ladder(number)]
    closes = 100 + np.random.default_rng(3).standard_normal(COUNT).cumsum() * 0.3
    market = settings(tmp_path, lines, closes)
    names = ("buy_call", "sell_put", "bull_call_spread", "iron_condor", "strangle", "sell_call", "straddle")
    envs = [
        TradingEnv(market, torch.arange(7), 0, torch.device("cpu"), sparse=sparse, historical=True)
        for sparse in (True, False)
    ]
    for env in envs:
        env.start_at(torch.full((7,), START))
        for _ in range(5):
            act(env, *names)
    torch.testing.assert_close(envs[0].account.value, envs[1].account.value, rtol=1e-12, atol=1e-6)
    again = TradingEnv(market, torch.arange(7), 0, torch.device("cpu"))
    assert torch.equal(again.load(envs[0].state()), act_observation(envs[0]))
    values = [act(env, *names).reward for env in (envs[0], again)]
    assert torch.equal(*values)


def act_observation(env):
    """What the environment shows now."""
    return env.restart(torch.zeros(env.count, dtype=torch.bool))


def test_what_is_the_same_for_all_accounts_is_computed_once(tmp_path, monkeypatch):
    computed, sheet = [], ChainsOnDevice.sheet
    monkeypatch.setattr(ChainsOnDevice, "sheet", lambda self: computed.append(1) or sheet(self))
    market = settings(tmp_path, ladder(START))
    history = load_history(market)
    for accounts in (1, 3):
        env = TradingEnv(market, torch.arange(accounts), 0, torch.device("cpu"), history=history)
        assert env.chain.listing is not None
    assert len(computed) == 1


def test_simulated_accounts_beside_chains_trade_the_models_prices(tmp_path):
    market = settings(tmp_path, ladder(START))
    both = TradingEnv(market, torch.arange(2), 0, torch.device("cpu"), historical=torch.tensor([True, False]))
    alone = TradingEnv(
        MarketSettings(episode_length=30, commission=0.0, market=market.market), torch.arange(2), 0, torch.device("cpu")
    )
    both.reset()
    alone.reset()
    for _ in range(3):
        one, other = act(both, "buy_call", "buy_call"), act(alone, "buy_call", "buy_call")
        assert float(one.reward[1]) == float(other.reward[1])


def test_a_run_records_the_chains(tmp_path):
    market = settings(tmp_path, ladder(START))
    record = data_record(load_history(market), 30, "all")
    assert len(record["chains"]) == 16
    chains(tmp_path, [*ladder(START), quote(START + 1, 100, "C", 4, 5)])
    other = data_record(load_history(market), 30, "all")
    assert {name for name in record if record[name] != other[name]} == {"chains"}
    assert "chains" not in data_record(load_history(MarketSettings(data=market.data)), 30, "all")
