"""Simulated prices, a day at a time, every random number drawn by counter. E: accounts.

An account's day belongs to (seed, index, clock): clock counts its days since the start of the run. Markets are open
every day of the year. Options are quoted such that they are fair, to less than their spread, to whoever knows nothing
but the law; only in the regime market is there more to be known.

Regimes: the log price gains or loses `regime_drift` daily deviations each day. With 0.2, one bar tells next to nothing
(the sign is guessed right 58 times in 100), the 20 bars of an observation tell it 81 times in 100, and who adds up
everything seen since the regime began knows it almost surely: 97 times in 100 after 90 days. A drift that lasts makes
far prices more uncertain than near ones, and the quotes know that (`Term`): else buying any option would be a bargain.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.trading.market_config import MarketConfig
from lockstep.workloads.trading.pricing import DAYS_PER_YEAR

_PURPOSE = "trading-market"
_JUMPS_PER_DAY = 1 / 30
_JUMP_MEAN, _JUMP_DEVIATION = -0.08, 0.16  # In units of the yearly volatility: 39 % of a year's variance.
_REVERSION, _VOLATILITY_NOISE, _LEVERAGE = 0.05, 0.08, -0.7  # Per day, of the logarithm of the volatility.
_TYPICAL_VOLUME = 1e6
DAYS_AHEAD = 16
"""How many days are drawn at once where that may be."""


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
    """What a lasting drift adds to the variance of longer horizons; `trend` 0: nothing."""

    trend: Tensor
    """(E,) the square of the drift in daily deviations."""
    memory: float
    """Days in which the drift's correlation with itself falls to 1/e."""

    def of(self, account: Tensor) -> "Term":
        """The same for some accounts, by their place (K,)."""
        return Term(self.trend.index_select(0, account), self.memory)

    def quoted(self, volatility: Tensor, days: Tensor) -> Tensor:
        """The volatility that options of so many days are quoted with; (E, ...) each."""
        age = days.clamp(min=1e-6) / self.memory
        lasting = 2.0 * self.memory * (1.0 + torch.expm1(-age) / age)
        trend = self.trend.view(-1, *(1,) * (volatility.dim() - 1))
        return volatility * torch.sqrt(1.0 + trend * lasting)


@dataclass
class Day:
    """What a simulated day brings, (E,) each: the bar relative to the close before, and tomorrow's hidden state."""

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

        Many at once cost far less on a CPU; a recorded step needs one at a time.
        """
        self._seed, self._index, self._ahead = seed, index, ahead
        self._days = torch.arange(ahead, device=index.device)[:, None]
        self._draws = torch.arange(2, device=index.device).view(2, 1, 1)
        self.forget()

    def forget(self) -> None:
        """Start over, because the clocks were set anew."""
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
    """The law by which simulated prices move."""

    def __init__(self, config: MarketConfig) -> None:
        self.kind = config.market
        self.mean_volatility = config.volatility
        self.constant_volatility = config.market != "stochastic"
        """Whether options are always quoted with the same volatility."""
        self._drift = config.drift / DAYS_PER_YEAR
        self._regime_drift = config.regime_drift
        self._switch = 1.0 / config.regime_length
        self._memory = 0.5 * config.regime_length
        # The mean of a growth that may go either way is above the growth of the mean: as much as this, at expiry.
        self._convexity = 0.5 * config.regime_drift**2 * config.expiry_days

    def term(self, simulated: Tensor) -> Term | None:
        """How quotes depend on the days to expiry for the accounts in the mask (E,); None: not at all."""
        trend = torch.where(simulated, self._regime_drift**2, 0.0).double()
        return Term(trend, self._memory) if self.kind == "regime" and self._regime_drift else None

    def first_regime(self, noise: Noise) -> Tensor:
        """(E,) the regime that an account begins in: 1 rising, -1 falling, 0 where the market has none."""
        sign = torch.where(noise.switch > 0.5, 1.0, -1.0).to(torch.float64)
        return sign if self.kind == "regime" else torch.zeros_like(sign)

    def day(self, volatility: Tensor, regime: Tensor, noise: Noise) -> Day:
        """Let a day pass; volatility and regime (E,) are those it begins with."""
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
        # The extremes of a Brownian path that is known to end at `change`.
        bend = -2.0 * diffusion * diffusion
        high = 0.5 * (change + torch.sqrt(change * change + bend * torch.log(noise.high)))
        low = 0.5 * (change - torch.sqrt(change * change + bend * torch.log(noise.low)))
        volume = _TYPICAL_VOLUME * torch.exp(0.3 * noise.volume + 0.4 * (change / daily).abs())
        return Day(change.exp(), high.exp(), low.exp(), volume, volatility, regime)

    def _jump(self, volatility: Tensor, daily: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Today's jump of the log price less its mean, and what deviation is left for the days without one."""
        size = volatility * (_JUMP_MEAN + _JUMP_DEVIATION * noise.jump_size)
        jump = torch.where(noise.jump <= _JUMPS_PER_DAY, size, 0.0) - _JUMPS_PER_DAY * _JUMP_MEAN * volatility
        variance = _JUMPS_PER_DAY * (_JUMP_MEAN**2 + _JUMP_DEVIATION**2) * DAYS_PER_YEAR
        return jump, daily * math.sqrt(1.0 - variance)

    def _moved(self, volatility: Tensor, noise: Noise) -> Tensor:
        """Tomorrow's volatility: its logarithm returns to the mean, and rises when the price falls."""
        shock = _LEVERAGE * noise.price + math.sqrt(1.0 - _LEVERAGE**2) * noise.volatility
        pull = _REVERSION * (math.log(self.mean_volatility) - volatility.log())
        return volatility * torch.exp(pull + _VOLATILITY_NOISE * shock)
