"""Indicators against textbook definitions, computed bar by bar in loops."""

import itertools
import math

import numpy as np
import pytest
import torch

from lockstep.workloads.trading.market.history import History
from lockstep.workloads.trading.market.indicators import NAMES, Indicators, smoothing
from lockstep.workloads.trading.market.market import Records
from lockstep.workloads.trading.market.settings import MarketSettings

DAYS = 20


def random_bars(seed=0, days=DAYS):
    """A list of (open, high, low, close, volume) rows."""
    generator = torch.Generator().manual_seed(seed)
    close, rows = 50.0, []
    for _ in range(days):
        start = close
        close *= math.exp(0.02 * float(torch.randn((), generator=generator)))
        high = max(start, close) * (1 + 0.01 * float(torch.rand((), generator=generator)))
        low = min(start, close) * (1 - 0.01 * float(torch.rand((), generator=generator)))
        rows.append((start, high, low, close, 1000 * float(torch.rand((), generator=generator)) + 1))
    return rows


def smoothed(values, weight):
    average = values[0]
    for value in values[1:]:
        average += weight * (value - average)
    return average


def textbook(rows, volatility):
    """Each indicator by its definition, before it is normalised."""
    _, highs, lows, closes, volumes = zip(*rows, strict=True)
    days = range(1, len(rows))
    emas = {n: [closes[0]] for n in (12, 26)}
    for close in closes[1:]:
        for n, ema in emas.items():
            ema.append(ema[-1] + 2 / (n + 1) * (close - ema[-1]))
    macds = [fast - slow for fast, slow in zip(emas[12], emas[26], strict=True)]
    signal = smoothed(macds, 2 / 10)
    gain = smoothed([max(closes[i] - closes[i - 1], 0) for i in days], 1 / 14)
    loss = smoothed([max(closes[i - 1] - closes[i], 0) for i in days], 1 / 14)
    ranges, ups, downs, indices = [], [], [], []
    for i in days:
        up, down = highs[i] - highs[i - 1], lows[i - 1] - lows[i]
        ranges.append(max(highs[i], closes[i - 1]) - min(lows[i], closes[i - 1]))
        ups.append(up if up > down and up > 0 else 0)
        downs.append(down if down > up and down > 0 else 0)
        plus, minus = smoothed(ups, 1 / 14), smoothed(downs, 1 / 14)
        indices.append(abs(plus - minus) / (plus + minus) if plus + minus else 0)
    adx, true_range = smoothed(indices, 1 / 14), smoothed(ranges, 1 / 14)
    typical = [(highs[i] + lows[i] + closes[i]) / 3 for i in range(-20, 0)]
    mean = sum(typical) / 20
    last20 = closes[-20:]
    middle = sum(last20) / 20
    deviation = math.sqrt(sum((close - middle) ** 2 for close in last20) / 20)
    moves = [math.log(b / a) for a, b in itertools.pairwise(last20)]
    realised = math.sqrt(sum(move**2 for move in moves) / 19 * 365)
    close, highest, lowest = closes[-1], max(highs[-14:]), min(lows[-14:])
    return {
        "macd": macds[-1] / close,
        "macd_signal": signal / close,
        "macd_histogram": (macds[-1] - signal) / close,
        "rsi": 100 - 100 / (1 + gain / loss),
        "cci": (typical[-1] - mean) / (0.015 * sum(abs(value - mean) for value in typical) / 20),
        "adx": adx,
        "plus_di": plus / true_range,
        "minus_di": minus / true_range,
        "bollinger_position": (close - middle) / (2 * deviation),
        "bollinger_width": 4 * deviation / middle,
        "volume_ratio": math.log((volumes[-1] + 1) / (sum(volumes[-20:]) / 20 + 1)),
        "return_1": math.log(close / closes[-2]),
        "return_5": math.log(close / closes[-6]),
        "return_10": math.log(close / closes[-11]),
        "return_19": math.log(close / closes[-20]),
        "realised_volatility": realised,
        "true_range": true_range / close,
        "stochastic_k": (close - lowest) / (highest - lowest),
        "implied_volatility": volatility,
        "volatility_premium": volatility - realised,
    }


def read(rows, volatility=0.3):
    bars = torch.tensor(rows, dtype=torch.float64).t()[None].float()
    return Indicators(torch.device("cpu")).read(bars, bars[:, 3].log(), torch.tensor([volatility]), 365.0)[0]


def normalised(name, value):
    if name in ("rsi",):
        return value / 50 - 1
    if name == "stochastic_k":
        return 2 * value - 1
    if name in ("adx", "plus_di", "minus_di"):
        return value
    scale = {"macd": 20, "macd_signal": 20, "macd_histogram": 60, "cci": 0.01, "true_range": 10}
    scale |= {"return_1": 30, "return_5": 13, "return_10": 9.5, "return_19": 7}
    return math.tanh(scale.get(name, 1) * value)


@pytest.mark.parametrize("seed", range(5))
def test_each_indicator_matches_its_definition(seed):
    rows = random_bars(seed)
    found, expected = read(rows).tolist(), textbook(rows, 0.3)
    assert set(expected) == set(NAMES)
    for name, value in zip(NAMES, found, strict=True):
        assert value == pytest.approx(normalised(name, expected[name]), abs=1e-4), name


def test_directions_are_exact_where_high_and_low_move_by_the_same_amount():
    """Prices in whole cents, of which one move in five is a tie; worked out in integers, which do not round."""
    draw = np.random.default_rng(3).integers
    highs, lows = 6837 + draw(-3, 4, 400).cumsum(), 6701 + draw(-3, 4, 400).cumsum()
    closes = (highs + lows) // 2
    assert 0.1 < (np.diff(highs) == -np.diff(lows)).mean() < 0.3
    cents = np.stack((closes, highs, lows, closes, np.full(400, 7)), 1)
    bars = cents * [0.01, 0.01, 0.01, 0.01, 1.0]
    zeros = np.zeros(400, dtype=np.int64)
    history = History(("A",), zeros, np.arange(400), bars, np.full(400, 0.3), validation_day=400)
    records = Records(history, "train", MarketSettings(episode_length=20), torch.device("cpu"))
    row = torch.arange(19, 400)
    window = records.window(row)
    found = Indicators(torch.device("cpu")).read(
        window, window[:, 3].log(), torch.full((len(row),), 0.3), 365.0, records.larger(row)
    )
    for last, values in zip(row.tolist(), found.tolist(), strict=True):
        expected = textbook(cents[last - 19 : last + 1].tolist(), 0.3)
        for name in ("adx", "plus_di", "minus_di"):
            assert values[NAMES.index(name)] == pytest.approx(expected[name], abs=1e-3), (name, last)


def test_smoothing_weights_match_the_recursion():
    """Half of the new value each time: 1/4 of the first, 1/4 of the second, 1/2 of the third."""
    assert smoothing(0.5, 3).tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]


def test_indicators_do_not_depend_on_the_unit_of_the_price():
    rows = random_bars()
    tenfold = [(*(10 * price for price in prices), volume) for *prices, volume in rows]
    torch.testing.assert_close(read(tenfold), read(rows), atol=1e-4, rtol=1e-4)


def test_a_price_that_never_moves_has_finite_indicators():
    values = read([(50.0, 50.0, 50.0, 50.0, 0.0)] * 20)
    assert torch.isfinite(values).all() and float(values.abs().max()) <= 1.0
