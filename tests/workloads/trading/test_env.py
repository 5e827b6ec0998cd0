"""The environment as a whole: observations, rewards, saved states, no look-ahead, and real days."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.compute import random
from lockstep.errors import UserError
from lockstep.workloads.trading.account.actions import ACTIONS, BUY_CALL, CLOSE_ALL, HOLD, SELL_CALL
from lockstep.workloads.trading.account.statement import INFO, statement
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.history import History, load_history
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.observation import SIZES, parts, split
from lockstep.workloads.trading.problem import accounts_with_history

CPU = torch.device("cpu")
SHARED = Path(__file__).parents[4] / "shared" / "data" / "market"


def made(count=6, seed=4, history=None, first=0, **settings):
    config = MarketSettings(**({"data": "given"} if history else {}), **settings)
    return TradingEnv(config, torch.arange(first, first + count), seed, CPU, history=history)


def actions(step, count, first=0):
    return (torch.arange(first, first + count) * 7 + step * step) % len(ACTIONS)


def run(env, steps, start=0, first=0):
    return [env.step(actions(step, env.count, first)) for step in range(start, start + steps)]


def history(days=200, symbols=3, seed=0):
    """Invented bars on real dates."""
    generator = np.random.default_rng(seed)
    close = 50 * np.exp(np.cumsum(generator.normal(0, 0.02, (symbols, days)), axis=1))
    bars = np.stack((close * 0.99, close * 1.02, close * 0.97, close, 1000 + 100 * generator.random(close.shape)), 2)
    dates = [(date(2015, 1, 5) + timedelta(days=n // 5 * 7 + n % 5)).toordinal() for n in range(days)]
    return History(
        symbols=("AAA", "BBB", "CCC")[:symbols],
        symbol=np.repeat(np.arange(symbols), days),
        day=np.tile(np.array(dates), symbols),
        bars=bars.reshape(-1, 5),
        volatility=np.full(symbols * days, 0.3),
        validation_day=dates[160],
    )


def test_the_observation_has_the_parts_of_the_guide():
    assert sum(SIZES.values()) == 430
    env = made()
    observation = env.reset()
    assert observation.shape == (6, *env.observation_shape) == (6, 430)
    assert observation.dtype == torch.float32 and torch.isfinite(observation).all()
    seen = split(observation, 0)
    assert list(seen) == list(SIZES)
    history = seen["price_history"].view(6, 20, 5)
    assert not history[:, -1, 3].any()
    closes = env.market.bars[:, 3]
    torch.testing.assert_close(history[:, :, 3], 10 * torch.log(closes / closes[:, -1:]))
    assert seen["portfolio_state"].tolist() == [[0.0] * 5] * 6
    assert not seen["greeks_summary"].any()


def test_an_account_sees_what_it_holds():
    env = made(count=2)
    env.reset()
    observation = env.step(torch.tensor([BUY_CALL, SELL_CALL])).observation
    seen = split(observation, 0)
    cash, positions, value, open_profit, step = seen["portfolio_state"].t()
    assert cash[0] < 0 < cash[1]
    assert positions.tolist() == pytest.approx([0.2, 0.2])
    assert step.tolist() == pytest.approx([1 / 250, 1 / 250])
    torch.testing.assert_close(value.double(), env.account.value / 100_000 - 1, atol=1e-6, rtol=0)
    torch.testing.assert_close(open_profit / 10, value, atol=1e-6, rtol=0)
    delta = seen["greeks_summary"][:, 0]
    assert delta[0] > 0 > delta[1]


def test_rewards_add_up_to_the_profit_of_the_episode():
    env = made(count=50, episode_length=40)
    env.reset()
    steps = run(env, 40)
    assert all(not step.terminated.any() for step in steps[:-1]) and steps[-1].terminated.all()
    assert not any(step.truncated.any() for step in steps)
    total = sum(step.reward for step in steps)
    info = steps[-1].info
    assert set(info) == set(INFO)
    torch.testing.assert_close(total, 1e-4 * info["profit"], atol=1e-4, rtol=1e-4)
    assert (info["closed_trades"] >= info["winning_trades"]).all() and info["closed_trades"].sum() > 50
    torch.testing.assert_close(info["value"], info["profit"] + 100_000)
    assert torch.equal(env.account.value, torch.full((50,), 100_000.0, dtype=torch.float64))
    assert env.market.spot.tolist() == pytest.approx([100.0] * 50)


def test_the_statement_agrees_with_the_daily_values():
    env = made(count=3, episode_length=30, market="brownian")
    env.reset()
    values, spots = [torch.full((3,), 100_000.0, dtype=torch.float64)], [env.market.spot.clone()]
    for step in range(30):
        done = env.advance(actions(step, 3) if step % 3 == 0 else torch.zeros(3, dtype=torch.int64))
        values.append(env.account.value.clone())
        spots.append(env.market.spot.clone())
    value, spot = torch.stack(values), torch.stack(spots)
    change = value.diff(dim=0)
    peak = value.cummax(0).values
    expected = {
        "drawdown": (1 - value / peak).max(0).values,
        "risk": change.std(0, correction=0),
        "sharpe": change.mean(0) / change.std(0, correction=0) * 365**0.5,
        "sortino": change.mean(0) / change.clamp(max=0).square().mean(0).sqrt() * 365**0.5,
        "underlying": spot[-1] / spot[0] - 1,
        "underlying_risk": spot.log().diff(dim=0).std(0, correction=0),
    }
    for name, value in expected.items():
        torch.testing.assert_close(done.info[name].double(), value, atol=1e-4, rtol=1e-4, msg=name)


def test_an_account_that_hardly_moves_has_no_ratio_of_profit_to_risk():
    env = made(count=2, episode_length=30, market="brownian")
    env.reset()
    for step in range(30):
        # The second account holds: its value never changes, and 0 / 0 is not 0.
        done = env.advance(torch.tensor([8 if step == 0 else 0, 0]))
    for name in ("sharpe", "sortino"):
        assert done.info[name].isnan().tolist() == [False, True]
    # One fall of a dollar in a month of gains: 300 a day / sqrt(1 / 30) would be a Sortino ratio of 31,000.
    env.account.tally.zero_()
    for change in [300.0] * 29 + [-1.0]:
        change = torch.full((2,), change, dtype=torch.float64)
        env.account.record(change, env.market.spot, torch.zeros_like(change))
    found = statement(env.settings, env.account, env.market, torch.zeros(2, dtype=torch.bool))
    assert found["sortino"].isnan().all() and (found["sharpe"] > 0).all()


def test_bankruptcy_ends_the_episode_and_restarts_only_that_account():
    env = made(count=40, market="brownian", volatility=2.0, position_size=1.0, max_positions=1)
    env.reset()
    for _ in range(120):
        value = env.account.value.clone()
        step = env.step(torch.full((40,), BUY_CALL))
        if step.terminated.any():
            break
    ended = step.terminated
    assert 0 < int(ended.sum()) < 40
    assert (step.info["value"][ended] <= 20_000).all() and (step.info["value"][~ended] > 20_000).all()
    assert torch.equal(step.info["bankrupt"], ended.float())
    assert (env.account.cash[ended] == 100_000).all() and not env.account.positions.open[ended].any()
    assert (env.account.steps[~ended] > 0).all() and (value[ended] > 20_000).all()


@pytest.mark.parametrize("market", ["regime", "brownian", "stochastic", "jumps"])
def test_a_saved_state_continues_with_the_same_bits(market):
    env = made(market=market, episode_length=25)
    env.reset()
    run(env, 33)
    state = env.state()
    assert all(len(tensor) == env.count for tensor in state.values())
    other = made(market=market, episode_length=25)
    resumed = other.load(state)
    assert torch.equal(resumed, seen_now(env))
    for one, two in zip(run(env, 40, 33), run(other, 40, 33), strict=True):
        assert torch.equal(one.observation, two.observation) and torch.equal(one.reward, two.reward)


def seen_now(env):
    return env.restart(torch.zeros(env.count, dtype=torch.bool))


class Watch(TorchDispatchMode):
    """Collects the operations that a captured step may not contain: those that wait for the device."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(word in str(func) for word in ("_local_scalar_dense", "nonzero", "masked_select", "aten.equal")):
            self.waits.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("real", [False, True])
def test_a_dense_step_never_syncs_works_in_place_and_equals_a_sparse_one(real, monkeypatch):
    # Counters are only looked at on the host: on a GPU that would be a wait.
    monkeypatch.setattr(random, "_refuse_large", lambda counter: None)
    config = MarketSettings(episode_length=25, data="given" if real else "")
    given = history() if real else None
    some, all_ = (TradingEnv(config, torch.arange(6), 4, CPU, history=given, sparse=sparse) for sparse in (True, False))
    assert torch.equal(some.reset(), all_.reset())
    places = {name: tensor.data_ptr() for name, tensor in all_._tensors().items()}
    for step in range(60):
        with Watch() as watch:
            one = all_.step(actions(step, 6))
        assert not watch.waits
        two = some.step(actions(step, 6))
        torch.testing.assert_close(one.observation, two.observation, atol=1e-5, rtol=0)
        torch.testing.assert_close(one.reward, two.reward, atol=1e-6, rtol=0)
    assert {name: tensor.data_ptr() for name, tensor in all_._tensors().items()} == places


def test_a_state_of_another_shape_is_refused():
    state = made(count=3).state()
    with pytest.raises(UserError, match="shape"):
        made(count=6).load(state)


def accounts_beside_others(device, market, each, real):
    """Exact mode steps the accounts of all lanes at once, so that every bit must be the one that a lane has alone."""
    config = MarketSettings(market=market, episode_length=25, data="given" if real else "")
    index, given = torch.arange(8 * each), history() if real else None
    together, *lanes = (TradingEnv(config, part, 4, device, history=given) for part in (index, *index.split(each)))
    seen = together.reset()
    assert torch.equal(seen, torch.cat([lane.reset() for lane in lanes]))
    for step in range(40):
        chosen = actions(step, 8 * each).to(device)
        one = together.step(chosen)
        apart = [lane.step(part) for lane, part in zip(lanes, chosen.split(each), strict=True)]
        assert torch.equal(one.observation, torch.cat([lane.observation for lane in apart]))
        assert torch.equal(one.reward, torch.cat([lane.reward for lane in apart]))


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("each", [1, 3, 8])
@pytest.mark.parametrize("market", ["regime", "brownian", "stochastic", "jumps"])
def test_an_account_does_not_depend_on_the_others_in_the_batch(market, each, real):
    accounts_beside_others(CPU, market, each, real)


@pytest.mark.gpu
@pytest.mark.parametrize(("each", "real"), [(1, False), (64, False), (512, False), (64, True)])
@pytest.mark.parametrize("market", ["regime", "brownian", "stochastic", "jumps"])
def test_an_account_on_a_gpu_does_not_depend_on_the_others_in_the_batch(market, each, real):
    accounts_beside_others(torch.device("cuda"), market, each, real)


def test_different_seeds_give_different_markets():
    assert not torch.equal(made(seed=1).reset(), made(seed=2).reset())


def test_a_second_reset_restarts_episodes_in_the_same_market():
    env = made()
    first = env.reset()
    run(env, 5)
    second = env.reset()
    assert not torch.equal(first, second)
    assert env.market.spot.tolist() == pytest.approx([100.0] * 6)
    assert not split(second, 0)["portfolio_state"].any()


def observations(env, steps):
    rows = [(env.market.row.clone(), env.reset())]
    for step in range(steps):
        observation = env.advance(actions(step, env.count)).observation
        rows.append((env.market.row.clone(), observation))
    return rows


def test_staggered_accounts_start_their_first_episode_on_any_day():
    config = MarketSettings(episode_length=40)
    env = TradingEnv(config, torch.arange(400), 3, torch.device("cpu"), staggered=True)
    seen = split(env.reset(), 0)["portfolio_state"][:, 4]
    ages = env.account.steps.clone()
    assert (int(ages.min()), int(ages.max())) == (0, 39) and float(ages.double().mean()) == pytest.approx(19.5, abs=2)
    torch.testing.assert_close(seen, ages.float() / 40)
    ended = torch.stack([env.step(torch.zeros_like(ages)).terminated for _ in range(80)])
    # The first end comes 40 days after the start that an account did not see, and from then on every 40 days.
    assert torch.equal(ended.int().argmax(0) + 1, 40 - ages)
    assert torch.equal(ended.sum(0), torch.full_like(ages, 2))
    other = TradingEnv(config, torch.arange(100, 110), 3, torch.device("cpu"), staggered=True)
    other.reset()
    assert torch.equal(other.account.steps, ages[100:110])


def test_staggered_episodes_are_averaged_over_the_days_traded():
    env = TradingEnv(MarketSettings(episode_length=40), torch.arange(60), 3, torch.device("cpu"), staggered=True)
    env.reset()
    days = 40 - env.account.steps
    prices, reported = [env.market.spot.clone()], torch.zeros(60)
    for day in range(1, 41):
        step = env.advance(torch.zeros(60, dtype=torch.int64))
        prices.append(env.market.spot.clone())
        reported = torch.where(days == day, step.info["underlying_risk"], reported)
    moves = torch.stack(prices).log().diff(dim=0)
    expected = torch.stack([moves[: days[account], account].std(correction=0) for account in range(60)])
    torch.testing.assert_close(reported, expected.float(), rtol=1e-4, atol=1e-6)


def test_observations_do_not_depend_on_later_bars():
    """Bars after some day are replaced: every observation up to that day stays the same to the bit."""
    data, length = history(days=200, symbols=1), 60
    first = made(count=8, history=data, episode_length=length, validation_part=0.0)
    rows = observations(first, 50)
    cut = int(rows[25][0].median())
    changed = history(days=200, symbols=1)
    changed.bars[cut + 1 :] *= 3.0
    changed.volatility[cut + 1 :] = 0.9
    second = observations(made(count=8, history=changed, episode_length=length, validation_part=0.0), 50)
    compared = altered = 0
    for (row, one), (_, two) in zip(rows, second, strict=True):
        before = row <= cut
        assert torch.equal(one[before], two[before])
        compared += int(before.sum())
        altered += int((one[~before] != two[~before]).any(1).sum())
    assert compared > 50 and altered > 50


def test_simulated_observations_do_not_depend_on_later_days():
    """Random numbers of later days are replaced: today's observation stays the same, tomorrow's changes."""
    one, two = made(), made()
    assert torch.equal(one.reset(), two.reset())
    for step in range(10):
        assert torch.equal(one.step(actions(step, 6)).observation, two.step(actions(step, 6)).observation)
    two.market.dice._normal.mul_(-1.0)
    assert torch.equal(seen_now(one), seen_now(two))
    assert not torch.equal(one.step(actions(10, 6)).observation, two.step(actions(10, 6)).observation)


def test_orders_are_filled_at_the_observed_quotes():
    env = made(count=1, market="stochastic")
    observation = env.reset()
    chain = split(observation, 0)["options_chain"].view(20, 15)
    row = 3 * 4
    ask = float(chain[row, 2]) / 10 * 100.0
    env.account.trade(torch.tensor([BUY_CALL]), env.market.spot, env.chain)
    contracts = int(env.account.opened)
    paid = 100_000 - float(env.account.cash)
    assert paid == pytest.approx(contracts * (100 * ask + 0.65), rel=1e-5)


def test_real_days_are_traded_in_their_order():
    data = history()
    env = made(count=30, history=data, episode_length=50)
    assert env.observation_shape == (433,)
    observation = env.reset()
    symbol = split(observation, 3)["symbol_encoding"]
    assert (symbol.sum(1) == 1).all() and symbol.sum(0).min() > 0
    row = env.market.row.clone()
    assert (row % 200 >= 60).all() and (row % 200 + 50 < 160).all()
    for step in range(49):
        done = env.step(torch.full((30,), HOLD))
        assert torch.equal(env.market.row, row + step + 1) and not done.terminated.any()
        assert env.market.spot.tolist() == data.bars[env.market.row, 3].tolist()
    assert set(env.market.days.tolist()) <= {1.0, 3.0}
    done = env.step(torch.full((30,), HOLD))
    assert done.terminated.all() and (done.info["historical"] == 1).all()
    growth = data.bars[row + 50, 3] / data.bars[row, 3] - 1
    assert done.info["underlying"].tolist() == pytest.approx(growth.tolist(), abs=1e-5)
    assert not torch.equal(env.market.row, row)


def test_validation_starts_where_training_ends():
    config = MarketSettings(data="given", episode_length=30)
    env = TradingEnv(config, torch.arange(40), 0, CPU, history=history(), split="validation")
    env.reset()
    assert (env.market.row % 200 >= 160).all() and (env.market.row % 200 < 170).all()


def test_options_age_over_weekends():
    env = made(count=30, history=history(), episode_length=50)
    env.reset()
    env.step(torch.full((30,), BUY_CALL))
    days = env.account.positions.days[:, 0]
    assert torch.equal(days, 30.0 - env.market.days)


def test_chosen_lanes_trade_real_days_and_the_others_simulated_ones():
    """16 accounts in 8 lanes: lanes 1 and 6 are the accounts 2, 3, 12 and 13."""
    config = MarketSettings(data="given", episode_length=20)
    lanes = [lane in (1, 6) for lane in range(8)]

    def accounts(index):
        historical = accounts_with_history(lanes, 16, index)
        return TradingEnv(config, index, 0, CPU, history=history(), historical=historical)

    whole = accounts(torch.arange(16))
    assert whole.market.historical.nonzero().squeeze(1).tolist() == [2, 3, 12, 13]
    part = accounts(torch.arange(10, 16))
    torch.testing.assert_close(whole.reset()[10:], part.reset())
    for one, two in zip(run(whole, 45), run(part, 45, first=10), strict=True):
        torch.testing.assert_close(one.observation[10:], two.observation, atol=1e-5, rtol=0)
        assert one.info["historical"].nonzero().squeeze(1).tolist() == [2, 3, 12, 13]
    encoding = split(one.observation, 3)["symbol_encoding"]
    assert encoding.sum(1).tolist() == [float(i in (2, 3, 12, 13)) for i in range(16)]
    assert whole.market.regime[whole.market.historical].abs().sum() == 0


def test_historical_accounts_without_data_are_refused():
    with pytest.raises(UserError, match="--data"):
        TradingEnv(MarketSettings(), torch.arange(2), 0, CPU, historical=True)


def test_parts_of_the_observation_are_contiguous():
    places = parts(5)
    assert places["price_history"] == slice(0, 100) and places["technical_indicators"] == slice(100, 120)
    assert places["options_chain"] == slice(120, 420) and places["symbol_encoding"] == slice(430, 435)


@pytest.mark.parametrize(
    ("settings", "action", "expected"),
    [
        ({"idle_penalty": 0.5}, HOLD, -0.5),
        ({"idle_penalty": 0.5, "reward_scale": 1e-12}, BUY_CALL, 0.0),
    ],
)
def test_idleness_can_be_penalised(settings, action, expected):
    env = made(count=1, **settings)
    env.reset()
    assert float(env.step(torch.tensor([action])).reward) == pytest.approx(expected, abs=1e-6)


def test_shaping_terms_are_added_to_the_change_of_value():
    plain, shaped = made(count=1), made(count=1, trade_penalty=0.01, realised_bonus=0.5)
    for env in (plain, shaped):
        env.reset()
    one, two = plain.step(torch.tensor([BUY_CALL])), shaped.step(torch.tensor([BUY_CALL]))
    assert float(one.reward - two.reward) == pytest.approx(1e-4 * 0.01 * float(plain.account.traded), rel=1e-3)
    one, two = plain.step(torch.tensor([CLOSE_ALL])), shaped.step(torch.tensor([CLOSE_ALL]))
    bonus = 0.5 * max(float(plain.account.realised), 0) - 0.01 * float(plain.account.traded)
    assert float(two.reward - one.reward) == pytest.approx(1e-4 * bonus, rel=1e-3)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared market data is not here")
def test_real_bars_can_be_traded():
    config = MarketSettings(data=str(SHARED / "us_index_daily.csv.gz"), start_date="2012-01-03")
    env = TradingEnv(config, torch.arange(32), 0, CPU, history=load_history(config))
    assert torch.isfinite(env.reset()).all() and env.observation_shape == (432,)
    for step in run(env, 30):
        assert torch.isfinite(step.observation).all() and torch.isfinite(step.reward).all()
