"""Technical indicators of the last 20 bars, and of nothing before them. E: accounts.

Bars are (E, 5, 20): open, high, low, close, volume, the oldest first. Averages follow the usual recursions, started at
the oldest bar: MACD 12/26/9 with exponential averages, RSI and ADX with Wilder's (weight 1/14). CCI and Bollinger bands
use all 20 bars, %K the last 14. An observation therefore contains nothing older than its bars, and a policy that needs
more must remember it.
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
"""Indicators that are fractions already; tanh is applied to all others."""
CENTRED = ("rsi", "stochastic_k")
"""Bounded indicators that are mapped from 0..1 to -1..1."""
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
"""Factors applied before tanh or centring, so that typical values use most of -1..1; 1 if not named."""
_LAGS = (1, 5, 10, 19)
_TIE = 1e-12  # As a fraction of the price: above the rounding of a float64 price, below any tick.
_TINY = 1e-9  # Keeps divisions finite when prices do not move.


def smoothing(weight: float, count: int) -> Tensor:
    """(N, N) row t: the weight of each of the values 0..t in their exponential average after value t."""
    rows = torch.zeros(count, count, dtype=torch.float64)
    # The recursion starts at the first value, not at 0.
    rows[0, 0] = 1.0
    for t in range(1, count):
        rows[t] = (1.0 - weight) * rows[t - 1]
        rows[t, t] += weight
    return rows


def larger_movement(high: Tensor, low: Tensor) -> Tensor:
    """(..., N - 1): 1 where the high moved up by more than the low moved down, -1 where by less, 0 where by the same.

    high, low (..., N): float64. Only the larger movement of a day counts for ADX, so that rounding would decide between
    them where prices with two decimals move by the same amount: in float32 0.9 % of all windows of real bars are wrong.
    """
    difference = torch.diff(high) + torch.diff(low)
    return torch.where(difference.abs() <= _TIE * high[..., 1:], 0.0, torch.sign(difference)).float()


class Indicators:
    """Computes technical indicators from the last bars."""

    def __init__(self, device: torch.device) -> None:
        def constant(values: Tensor) -> Tensor:
            return values.float().to(device)

        # Over a fixed number of bars each recursive average is a weighted sum: the weights are computed once, in
        # float64. A period of N bars has weight 2 / (N + 1): 12 and 26 bars, and 9 for the signal line.
        macd = smoothing(2 / 13, BARS) - smoothing(2 / 27, BARS)
        self._macd = constant(torch.stack((macd[-1], smoothing(2 / 10, BARS)[-1] @ macd)))
        # 20 bars have 19 changes.
        wilder = smoothing(1 / 14, BARS - 1)
        self._wilder, self._wilder_series = constant(wilder[-1]), constant(wilder.t())
        self._places = BARS - 1 - torch.tensor(_LAGS, device=device)
        self._scales = torch.tensor([SCALES.get(name, 1.0) for name in NAMES], device=device)
        self._bounded = torch.tensor([name in BOUNDED for name in NAMES], device=device)
        self._middles = torch.tensor([float(name in CENTRED) for name in NAMES], device=device)

    def read(
        self,
        bars: Tensor,
        logs: Tensor,
        volatility: Tensor,
        days_per_year: Tensor | float,
        larger: Tensor | None = None,
    ) -> Tensor:
        """(E, 20) the indicators, each about -1 to 1.

        logs (E, 20): logarithms of the closes, in any unit; volatility (E,): what options are quoted with; larger
        (E, 19): the `larger_movement` of each day, None if prices are so continuous that there are no ties.
        """
        # All prices as fractions of the last close, which is therefore 1.
        bars = torch.cat((bars[:, :VOLUME] / bars[:, CLOSE, -1, None, None], bars[:, VOLUME:]), dim=1)
        _, high, low, close, volume = bars.unbind(1)
        middle = close.mean(1)
        deviation = (close - middle[:, None]).square().mean(1).sqrt()
        # Relative to the last close: the weights of MACD add up to zero, so the price level would only cost precision.
        macd, signal = ((close - 1.0)[:, None] * self._macd).sum(2).unbind(1)
        past_returns = logs[:, -1:] - logs.index_select(1, self._places)
        realised = torch.diff(logs, dim=1).square().mean(1).mul(days_per_year).sqrt()
        highest, lowest = high[:, -14:].amax(1), low[:, -14:].amin(1)
        plus, minus, adx, true_range = self._directions(high, low, close, larger)
        columns = (
            macd,
            signal,
            macd - signal,
            self._strength(close),
            self._commodity_channel(high, low, close),
            adx,
            plus / (true_range + _TINY),
            minus / (true_range + _TINY),
            (1.0 - middle) / (2.0 * deviation + _TINY),
            4.0 * deviation / middle,
            torch.log((volume[:, -1] + 1.0) / (volume.mean(1) + 1.0)),
            *past_returns.unbind(1),
            realised,
            true_range,
            (1.0 - lowest) / (highest - lowest + _TINY),
            volatility,
            volatility - realised,
        )
        scaled = torch.stack(columns, dim=1) * self._scales
        return torch.where(self._bounded, scaled - self._middles, torch.tanh(scaled))

    def _strength(self, close: Tensor) -> Tensor:
        """(E,) RSI / 100: gains as a fraction of all moves."""
        change = torch.diff(close, dim=1) * self._wilder
        moved = change.abs().sum(1)
        # Gains are half of (all moves + net change).
        return 0.5 * (moved + change.sum(1)) / (moved + _TINY)

    def _commodity_channel(self, high: Tensor, low: Tensor, close: Tensor) -> Tensor:
        """(E,) CCI."""
        # 0.015 is the constant of Lambert's definition.
        typical = (high + low + close) / 3.0
        from_mean = typical - typical.mean(1, keepdim=True)
        return from_mean[:, -1] / (0.015 * from_mean.abs().mean(1) + _TINY)

    def _averages(self, moves: Tensor) -> Tensor:
        """Wilder's averages of values (..., N) after each of them."""
        # As sums of N products where a library chooses its kernel, and so their order, by the number of accounts.
        if not (moves.is_cuda or torch.backends.mkl.is_available()):
            return torch.matmul(moves, self._wilder_series)
        return (moves.unsqueeze(-2) * self._wilder_series.t()).sum(-1)

    def _directions(
        self, high: Tensor, low: Tensor, close: Tensor, larger: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(E,) each: directional movement up and down, ADX / 100, and the true range."""
        up, down = torch.diff(high, dim=1), -torch.diff(low, dim=1)
        # Only the larger of the two movements of a day counts, and only if it is positive.
        rises, falls = (up > down, down > up) if larger is None else (larger > 0, larger < 0)
        moves = torch.stack((torch.where(rises, up, 0.0), torch.where(falls, down, 0.0))).clamp_(min=0.0)
        plus, minus = self._averages(moves).unbind()
        index = (plus - minus).abs() / (plus + minus + _TINY)
        # The true range includes the gap from the previous close.
        before = close[:, :-1]
        ranges = torch.maximum(high[:, 1:], before) - torch.minimum(low[:, 1:], before)
        return plus[:, -1], minus[:, -1], (index * self._wilder).sum(1), (ranges * self._wilder).sum(1)
