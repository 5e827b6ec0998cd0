"""Simulated prices, one day at a time, with counter-based random numbers. E: accounts.

An account's random numbers are keyed by (seed, index, clock): clock counts its days since the start of the run. Markets
are open every day of the year. Option quotes are fair, to within their spread, for a trader who knows only the price
process; only in the regime market can a trader know more.

Regimes: the log price gains or loses `regime_drift` daily standard deviations each day. With 0.2, one bar reveals
little (the sign is guessed right 58 % of the time), the 20 bars of an observation reveal it 81 % of the time, and
everything since the regime began 97 % of the time after 90 days. A persistent drift makes distant prices more uncertain
than near ones. The quotes account for that (`Term`); otherwise every option would be underpriced.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR
from lockstep.workloads.trading.market.settings import MarketSettings

_PURPOSE = "trading-market"
_JUMPS_PER_DAY = 1 / 30
_JUMP_MEAN, _JUMP_DEVIATION = -0.08, 0.16  # In units of the yearly volatility: 39 % of a year's variance.
_REVERSION, _VOLATILITY_NOISE, _LEVERAGE = 0.05, 0.08, -0.7  # Per day, of the logarithm of the volatility.
_TYPICAL_VOLUME = 1e6
DAYS_AHEAD = 16
"""Days drawn at once, outside captured graphs."""


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
class Term:
    """What a persistent drift adds to the variance of longer horizons; nothing if `trend` is 0."""

    trend: Tensor
    """(E,) the square of the drift, in daily standard deviations."""
    memory: float
    """Days in which the drift's autocorrelation falls to 1/e."""

    def of(self, account: Tensor) -> "Term":
        """The same for some accounts, by their index (K,)."""
        return Term(self.trend.index_select(0, account), self.memory)

    def quoted(self, volatility: Tensor, days: Tensor) -> Tensor:
        """The volatility that options with `days` to expiry are quoted with; (E, ...) each."""
        age = days.clamp(min=1e-6) / self.memory
        lasting = 2.0 * self.memory * (1.0 + torch.expm1(-age) / age)
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
    """Every account's random numbers by day."""

    def __init__(self, seed: int, index: Tensor, ahead: int = 1) -> None:
        """`index` (E,): each account's number over the whole run. `ahead`: days drawn at once, which changes no number.

        Many at once are much cheaper on a CPU; a captured CUDA graph needs one at a time.
        """
        self._seed, self._index, self._ahead = seed, index, ahead
        self._days = torch.arange(ahead, device=index.device)[:, None]
        self._draws = torch.arange(2, device=index.device).view(2, 1, 1)
        self.forget()

    def forget(self) -> None:
        """Drop the days drawn ahead, because the clocks were changed."""
        self._age = self._ahead

    def next(self, clock: Tensor) -> Noise:
        """The numbers of day `clock` (E,), which must be one more than that of the last call or follow `forget`."""
        if self._age == self._ahead:
            self._normal, self._unit = self._draw(clock)
            self._age = 0
        today = Noise(*self._normal[:, self._age], *self._unit[:, self._age])
        self._age += 1
        return today

    def _draw(self, clock: Tensor) -> tuple[Tensor, Tensor]:
        """(4, D, E) normals and (4, D, E) uniforms of D days from `clock` on."""
        words = random.words(self._seed, _PURPOSE, self._index, clock + self._days, self._draws)
        unit = 1.0 - random.to_unit(torch.stack(words)).to(torch.float64)
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
        self._memory = 0.5 * settings.regime_length
        # Jensen's inequality: with a drift of unknown sign the expected price grows faster than the mean log price.
        # This is the difference at expiry, which is taken out so that quotes stay fair.
        self._convexity = 0.5 * settings.regime_drift**2 * settings.expiry_days

    def term(self, simulated: Tensor) -> Term | None:
        """How quotes depend on the days to expiry for the accounts in the mask (E,); None if they do not."""
        trend = torch.where(simulated, self._regime_drift**2, 0.0).double()
        return Term(trend, self._memory) if self.kind == "regime" and self._regime_drift else None

    def first_regime(self, noise: Noise) -> Tensor:
        """(E,) an account's first regime: 1 rising, -1 falling, 0 if the market has none."""
        sign = torch.where(noise.switch > 0.5, 1.0, -1.0).to(torch.float64)
        return sign if self.kind == "regime" else torch.zeros_like(sign)

    def day(self, volatility: Tensor, regime: Tensor, noise: Noise) -> Day:
        """Simulate one day; volatility and regime (E,) are those at its start."""
        daily = volatility * math.sqrt(1.0 / DAYS_PER_YEAR)
        change = self._drift - 0.5 * daily * daily
        diffusion = daily
        if self.kind == "regime":
            change = change + regime * self._regime_drift * daily - self._convexity * daily * daily
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
        volume = _TYPICAL_VOLUME * torch.exp(0.3 * noise.volume + 0.4 * (change / daily).abs())
        return Day(change.exp(), high.exp(), low.exp(), volume, volatility, regime)

    def _jump(self, volatility: Tensor, daily: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Today's jump of the log price less its mean, and the standard deviation left for the diffusion."""
        size = volatility * (_JUMP_MEAN + _JUMP_DEVIATION * noise.jump_size)
        jump = torch.where(noise.jump <= _JUMPS_PER_DAY, size, 0.0) - _JUMPS_PER_DAY * _JUMP_MEAN * volatility
        variance = _JUMPS_PER_DAY * (_JUMP_MEAN**2 + _JUMP_DEVIATION**2) * DAYS_PER_YEAR
        return jump, daily * math.sqrt(1.0 - variance)

    def _moved(self, volatility: Tensor, noise: Noise) -> Tensor:
        """The next day's volatility: its logarithm reverts to the mean, and rises when the price falls."""
        shock = _LEVERAGE * noise.price + math.sqrt(1.0 - _LEVERAGE**2) * noise.volatility
        pull = _REVERSION * (math.log(self.mean_volatility) - volatility.log())
        return volatility * torch.exp(pull + _VOLATILITY_NOISE * shock)
