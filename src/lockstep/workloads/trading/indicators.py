"""Technical indicators of daily bars: running averages kept per account, the rest from the last 20 bars. E: accounts.

Bars are (E, 5, 20): open, high, low, close, volume, the oldest first. Averages follow the usual definitions: MACD
12/26/9 by exponential averages, RSI and ADX by Wilder's (1/14), CCI and Bollinger bands over 20 bars, %K over 14.
"""

import torch
from torch import Tensor

OPEN, HIGH, LOW, CLOSE, VOLUME = range(5)
BARS = 20
NAMES = (
    "macd",
    "macd_signal",
    "macd_histogram",
    "rsi",
    "cci",
    "adx",
    "plus_di",
    "minus_di",
    "bollinger_position",
    "bollinger_width",
    "volume_ratio",
    "return_1",
    "return_5",
    "return_10",
    "return_19",
    "realised_volatility",
    "true_range",
    "stochastic_k",
    "implied_volatility",
    "volatility_premium",
)
BOUNDED = ("rsi", "adx", "plus_di", "minus_di", "stochastic_k")
"""Those that are parts of something and stay as they are; of all others the hyperbolic tangent is shown."""
CENTRED = ("rsi", "stochastic_k")
"""Those of them that are moved from 0..1 to -1..1."""
SCALES = {
    "macd": 20.0,
    "macd_signal": 20.0,
    "macd_histogram": 60.0,
    "rsi": 2.0,
    "cci": 0.01,
    "return_1": 30.0,
    "return_5": 13.0,
    "return_10": 9.5,
    "return_19": 7.0,
    "true_range": 10.0,
    "stochastic_k": 2.0,
}
"""What each is multiplied by before that; 1 where not named."""
_FAST, _SLOW, _GAIN, _LOSS, _RANGE, _UP, _DOWN, _SIGNAL, _ADX = range(9)
AVERAGES = 9
PRICE_AVERAGES = 8
"""The first so many averages are in the unit of the price, and change with it."""
_WEIGHTS = (2 / 13, 2 / 27, 1 / 14, 1 / 14, 1 / 14, 1 / 14, 1 / 14)
_LAGS = (1, 5, 10, 19)
_TINY = 1e-9


class Indicators:
    """How running averages go on, and what they and the bars read as."""

    def __init__(self, device: torch.device) -> None:
        self._weights = torch.tensor(_WEIGHTS, device=device)
        self._places = BARS - 1 - torch.tensor(_LAGS, device=device)
        self._scales = torch.tensor([SCALES.get(name, 1.0) for name in NAMES], device=device)
        self._bounded = torch.tensor([name in BOUNDED for name in NAMES], device=device)
        self._middles = torch.tensor([float(name in CENTRED) for name in NAMES], device=device)

    def begin(self, bars: Tensor) -> Tensor:
        """(E, 9) averages as they are when the last of these bars is the first that was seen."""
        averages = bars.new_zeros(len(bars), AVERAGES)
        averages[:, : _SLOW + 1] = bars[:, CLOSE, -1:]
        return averages

    def follow(self, averages: Tensor, bars: Tensor) -> Tensor:
        """(E, 9) the averages after the last of these bars."""
        _, high, low, close, _ = bars[:, :, -1].unbind(1)
        _, high_before, low_before, close_before, _ = bars[:, :, -2].unbind(1)
        change = close - close_before
        up, down = high - high_before, low_before - low
        today = (
            close,
            close,
            change.clamp(min=0.0),
            (-change).clamp(min=0.0),
            torch.maximum(high, close_before) - torch.minimum(low, close_before),
            torch.where(up > down, up, 0.0).clamp(min=0.0),
            torch.where(down > up, down, 0.0).clamp(min=0.0),
        )
        smooth = torch.lerp(averages[:, :_SIGNAL], torch.stack(today, dim=1), self._weights)
        macd = smooth[:, _FAST] - smooth[:, _SLOW]
        signal = torch.lerp(averages[:, _SIGNAL], macd, 2 / 10)
        plus, minus = smooth[:, _UP], smooth[:, _DOWN]
        adx = torch.lerp(averages[:, _ADX], (plus - minus).abs() / (plus + minus + _TINY), 1 / 14)
        return torch.cat((smooth, signal[:, None], adx[:, None]), dim=1)

    def read(
        self, averages: Tensor, bars: Tensor, logs: Tensor, volatility: Tensor, days_per_year: Tensor | float
    ) -> Tensor:
        """(E, 20) the indicators, each about -1 to 1.

        logs (E, 20): logarithms of the closes, in any unit; volatility (E,): what options are quoted with.
        """
        close = bars[:, CLOSE, -1]
        fast, slow, gain, loss, true_range, up, down, signal, adx = averages.unbind(1)
        macd = (fast - slow) / close
        signal = signal / close
        typical = bars[:, HIGH : CLOSE + 1].mean(1)
        from_mean = typical - typical.mean(1, keepdim=True)
        cci = from_mean[:, -1] / (0.015 * from_mean.abs().mean(1) + _TINY)
        middle = bars[:, CLOSE].mean(1)
        deviation = (bars[:, CLOSE] - middle[:, None]).square().mean(1).sqrt()
        gone = logs[:, -1:] - logs.index_select(1, self._places)
        realised = torch.diff(logs, dim=1).square().mean(1).mul(days_per_year).sqrt()
        highest, lowest = bars[:, HIGH, -14:].amax(1), bars[:, LOW, -14:].amin(1)
        volume = bars[:, VOLUME]
        columns = (
            macd,
            signal,
            macd - signal,
            gain / (gain + loss + _TINY),
            cci,
            adx,
            up / (true_range + _TINY),
            down / (true_range + _TINY),
            (close - middle) / (2.0 * deviation + _TINY),
            4.0 * deviation / middle,
            torch.log((volume[:, -1] + 1.0) / (volume.mean(1) + 1.0)),
            *gone.unbind(1),
            realised,
            true_range / close,
            (close - lowest) / (highest - lowest + _TINY),
            volatility,
            volatility - realised,
        )
        scaled = torch.stack(columns, dim=1) * self._scales
        return torch.where(self._bounded, scaled - self._middles, torch.tanh(scaled))
