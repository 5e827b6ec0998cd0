"""Indicators against the textbook's loops, bar by bar."""

import itertools
import math

import pytest
import torch

from lockstep.workloads.trading.indicators import BARS, NAMES, PRICE_AVERAGES, Indicators

DAYS = 120


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


def smoothed(values, weight, first):
    for value in values:
        first += weight * (value - first)
    return first


def textbook(rows, volatility):
    """Each indicator by its definition, before it is normalised."""
    _, highs, lows, closes, volumes = zip(*rows, strict=True)
    days = range(1, len(rows))
    emas = {n: [closes[0]] for n in (12, 26)}
    for close in closes[1:]:
        for n, ema in emas.items():
            ema.append(ema[-1] + 2 / (n + 1) * (close - ema[-1]))
    macds = [fast - slow for fast, slow in zip(emas[12], emas[26], strict=True)]
    signal = smoothed(macds, 2 / 10, 0.0)
    gain = smoothed([max(closes[i] - closes[i - 1], 0) for i in days], 1 / 14, 0.0)
    loss = smoothed([max(closes[i - 1] - closes[i], 0) for i in days], 1 / 14, 0.0)
    adx = plus = minus = true_range = 0.0
    for i in days:
        up, down = highs[i] - highs[i - 1], lows[i - 1] - lows[i]
        true_range += (max(highs[i], closes[i - 1]) - min(lows[i], closes[i - 1]) - true_range) / 14
        plus += ((up if up > down and up > 0 else 0) - plus) / 14
        minus += ((down if down > up and down > 0 else 0) - minus) / 14
        adx += (abs(plus - minus) / (plus + minus) - adx if plus + minus else -adx) / 14
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


def follow(rows, indicators):
    bars = torch.tensor(rows, dtype=torch.float64).t()[None]
    averages = indicators.begin(bars[:, :, :1].float())
    for day in range(1, len(rows)):
        averages = indicators.follow(averages, bars[:, :, day - 1 : day + 1].float())
    return averages, bars[:, :, -BARS:].float()


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


@pytest.mark.parametrize("seed", range(3))
def test_each_indicator_is_what_its_definition_says(seed):
    rows = random_bars(seed)
    indicators = Indicators(torch.device("cpu"))
    averages, bars = follow(rows, indicators)
    found = indicators.read(averages, bars, bars[:, 3].log(), torch.tensor([0.3]), 365.0)[0].tolist()
    wanted = textbook(rows, 0.3)
    assert set(wanted) == set(NAMES)
    for name, value in zip(NAMES, found, strict=True):
        assert value == pytest.approx(normalised(name, wanted[name]), abs=2e-3), name


def test_indicators_do_not_depend_on_the_unit_of_the_price():
    indicators = Indicators(torch.device("cpu"))
    averages, bars = follow(random_bars(), indicators)

    def read(averages, bars):
        return indicators.read(averages, bars, bars[:, 3].log(), torch.tensor([0.3]), 365.0)

    tenfold, scaled = bars.clone(), averages.clone()
    tenfold[:, :4] *= 10
    scaled[:, :PRICE_AVERAGES] *= 10
    torch.testing.assert_close(read(scaled, tenfold), read(averages, bars), atol=1e-4, rtol=1e-4)


def test_a_price_that_never_moves_has_finite_indicators():
    rows = [(50.0, 50.0, 50.0, 50.0, 0.0)] * 40
    indicators = Indicators(torch.device("cpu"))
    averages, bars = follow(rows, indicators)
    values = indicators.read(averages, bars, bars[:, 3].log(), torch.tensor([0.3]), 365.0)
    assert torch.isfinite(values).all() and float(values.abs().max()) <= 1.0
