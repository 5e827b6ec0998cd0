"""Simulated prices, one day at a time, with counter-based random numbers. E: accounts.

An account's random numbers are keyed by (seed, index, clock): clock counts its days since the start of the run. Markets
are open every day of the year. Option quotes are fair, to within their spread, for a trader who knows only the price
process; only in the regime market can a trader know more.

Regimes: the log price gains or loses `regime_drift` daily standard deviations each day. With 0.2, one bar reveals
little (it gives the right sign 58 % of the time), the 20 bars of an observation give it 81 % of the time, and after 90
days all bars since the regime began give it 97 % of the time. A persistent drift makes distant prices more uncertain
than near ones. The quotes account for that (`TermStructure`); otherwise every option would be underpriced.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR
from lockstep.workloads.trading.market.settings import MarketSettings

# The random stream of simulated prices. Changing the tag changes every price.
_PURPOSE = "trading-market"
_JUMPS_PER_DAY = 1 / 30
_JUMP_MEAN, _JUMP_DEVIATION = -0.08, 0.16  # In units of the yearly volatility: 39 % of a year's variance.
# Of the logarithm of the volatility, per day; the leverage is its correlation with the price.
_REVERSION, _VOLATILITY_NOISE, _LEVERAGE = 0.05, 0.08, -0.7
_TYPICAL_VOLUME = 1e6
DAYS_AHEAD = 16
"""Days of random numbers drawn at once where no CUDA graph is captured."""


@dataclass
class Noise:
    """Random numbers of a day, (E,) each: four standard normals and four uniforms in (0, 1]."""

    price: Tensor
    volatility: Tensor
    volume: Tensor
    jump_size: Tensor
    switch: Tensor
    jump: Tensor
    high: Tensor
    low: Tensor


@dataclass
class TermStructure:
    """The term structure of volatility: what a persistent drift adds at longer horizons; nothing if `trend` is 0."""

    trend: Tensor
    """(E,) the square of the drift, in daily standard deviations."""
    memory: float
    """Days in which the drift's autocorrelation falls to 1/e."""

    def of(self, account: Tensor) -> "TermStructure":
        """The term structure of some accounts, given their places (K,) in the batch."""
        return TermStructure(self.trend.index_select(0, account), self.memory)

    def quoted(self, volatility: Tensor, days: Tensor) -> Tensor:
        """The volatility that options with `days` to expiry are quoted with; (E, ...) each."""
        # The variance of a sum of drifts whose autocorrelation falls as exp(-t / memory), per day and relative to the
        # daily variance: trend x 2 memory (1 - (1 - exp(-age)) / age). The clamp avoids 0 / 0 at expiry.
        age = days.clamp(min=1e-6) / self.memory
        lasting = 2.0 * self.memory * (1.0 + torch.expm1(-age) / age)
        # (E, 1, ...), to broadcast over the other axes.
        trend = self.trend.view(-1, *(1,) * (volatility.dim() - 1))
        return volatility * torch.sqrt(1.0 + trend * lasting)


@dataclass
class Day:
    """A simulated day, (E,) each: the bar relative to the previous close, and the next day's hidden state."""

    close: Tensor
    high: Tensor
    low: Tensor
    volume: Tensor
    volatility: Tensor
    regime: Tensor


class Dice:
    """Draws every account's random numbers for each day."""

    def __init__(self, seed: int, index: Tensor, ahead: int = 1) -> None:
        """`index` (E,): each account's number in the run. `ahead`: days drawn at once, without effect on the numbers.

        Drawing many at once is much cheaper on a CPU. A captured CUDA graph must draw one day at a time, because it
        repeats the same operations each step.
        """
        self._seed, self._index, self._ahead = seed, index, ahead
        self._days = torch.arange(ahead, device=index.device)[:, None]
        self._draws = torch.arange(2, device=index.device).view(2, 1, 1)
        self.forget()

    def forget(self) -> None:
        """Drop the days drawn ahead; call it when the clocks were changed."""
        # As if all days drawn had been used, so that `next` draws again.
        self._age = self._ahead

    def next(self, clock: Tensor) -> Noise:
        """The numbers of day `clock` (E,): one more than in the last call, unless `forget` was called since."""
        if self._age == self._ahead:
            self._normal, self._unit = self._draw(clock)
            self._age = 0
        today = Noise(*self._normal[:, self._age], *self._unit[:, self._age])
        self._age += 1
        return today

    def _draw(self, clock: Tensor) -> tuple[Tensor, Tensor]:
        """(4, D, E) normals and (4, D, E) uniforms of D days from `clock` on."""
        # Four words of (2, D, E): the first of the two draws becomes the normals, the second the uniforms.
        words = random.random_words(self._seed, _PURPOSE, self._index, clock + self._days, self._draws)
        # (0, 1] instead of [0, 1), because of the logarithms here and in `Paths.day`.
        unit = 1.0 - random.to_unit(torch.stack(words)).to(torch.float64)
        # Box-Muller: two uniforms make two normals.
        radius = torch.sqrt(-2.0 * torch.log(unit[:2, 0]))
        angle = 2.0 * math.pi * unit[2:, 0]
        return torch.cat((radius * torch.cos(angle), radius * torch.sin(angle))), unit[:, 1]


class Paths:
    """The stochastic process of simulated prices."""

    def __init__(self, settings: MarketSettings) -> None:
        self.kind = settings.market
        self.mean_volatility = settings.volatility
        self.constant_volatility = settings.market != "stochastic"
        """Whether options are always quoted with the same volatility."""
        self._drift = settings.drift / DAYS_PER_YEAR
        self._regime_drift = settings.regime_drift
        self._switch = 1.0 / settings.regime_length
        # The sign flips with probability 1 / length a day, so its autocorrelation falls as exp(-2 t / length).
        self._memory = 0.5 * settings.regime_length
        # Jensen's inequality: with a drift of unknown sign the expected price grows faster than the mean log price.
        # The difference at expiry is subtracted from the drift, so that quotes stay fair.
        self._convexity = 0.5 * settings.regime_drift**2 * settings.expiry_days

    def term(self, simulated: Tensor) -> TermStructure | None:
        """How quotes depend on the days to expiry for the accounts in the mask (E,); None if they do not."""
        trend = torch.where(simulated, self._regime_drift**2, 0.0).double()
        return TermStructure(trend, self._memory) if self.kind == "regime" and self._regime_drift else None

    def first_regime(self, noise: Noise) -> Tensor:
        """(E,) an account's first regime: 1 rising, -1 falling, 0 if the market has no regimes."""
        sign = torch.where(noise.switch > 0.5, 1.0, -1.0).to(torch.float64)
        return sign if self.kind == "regime" else torch.zeros_like(sign)

    def day(self, volatility: Tensor, regime: Tensor, noise: Noise) -> Day:
        """Simulate one day; volatility and regime (E,) are those at its start."""
        daily = volatility * math.sqrt(1.0 / DAYS_PER_YEAR)
        # Ito's correction: the expected price, not the expected log price, grows with the drift.
        change = self._drift - 0.5 * daily * daily
        diffusion = daily
        if self.kind == "regime":
            change = change + regime * self._regime_drift * daily - self._convexity * daily * daily
            # From tomorrow on: today's change is made with today's regime.
            regime = torch.where(noise.switch <= self._switch, -regime, regime)
        if self.kind == "jumps":
            jump, diffusion = self._jump(volatility, daily, noise)
            change = change + jump
        if self.kind == "stochastic":
            volatility = self._moved(volatility, noise)
        change = change + diffusion * noise.price
        # The maximum and minimum of a Brownian bridge that ends at `change`, by inverting their distribution.
        bend = -2.0 * diffusion * diffusion
        high = 0.5 * (change + torch.sqrt(change * change + bend * torch.log(noise.high)))
        low = 0.5 * (change - torch.sqrt(change * change + bend * torch.log(noise.low)))
        # Log-normal, and higher on days of large moves.
        volume = _TYPICAL_VOLUME * torch.exp(0.3 * noise.volume + 0.4 * (change / daily).abs())
        return Day(change.exp(), high.exp(), low.exp(), volume, volatility, regime)

    def _jump(self, volatility: Tensor, daily: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Today's jump of the log price less its mean, and the standard deviation left for the diffusion."""
        # Mean and variance are compensated, so that drift and volatility are those of the configuration.
        size = volatility * (_JUMP_MEAN + _JUMP_DEVIATION * noise.jump_size)
        jump = torch.where(noise.jump <= _JUMPS_PER_DAY, size, 0.0) - _JUMPS_PER_DAY * _JUMP_MEAN * volatility
        variance = _JUMPS_PER_DAY * (_JUMP_MEAN**2 + _JUMP_DEVIATION**2) * DAYS_PER_YEAR
        return jump, daily * math.sqrt(1.0 - variance)

    def _moved(self, volatility: Tensor, noise: Noise) -> Tensor:
        """The next day's volatility: its logarithm reverts to the mean, and rises when the price falls."""
        # A standard normal with correlation _LEVERAGE to the price's.
        shock = _LEVERAGE * noise.price + math.sqrt(1.0 - _LEVERAGE**2) * noise.volatility
        pull = _REVERSION * (math.log(self.mean_volatility) - volatility.log())
        return volatility * torch.exp(pull + _VOLATILITY_NOISE * shock)
