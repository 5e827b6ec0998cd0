"""Simulated prices, one day at a time, with counter-based random numbers. E: accounts.

An account's random numbers are keyed by (seed, index, clock): clock counts its days since the start of the run. Markets
are open every day of the year. Options cost their expected payoff (see `smiles`), so that nothing can be earned before
costs, except in the regime market by who learns from past prices which regime it is.

Regimes: the log price gains or loses `regime_drift` daily standard deviations each day. With 0.2, one bar reveals
little (it gives the right sign 58 % of the time), the 20 bars of an observation give it 81 % of the time, and after 90
days all bars since the regime began give it 97 % of the time.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.market.smiles import (
    JUMP_DEVIATION,
    JUMP_MEAN,
    JUMPS_PER_DAY,
    LEVERAGE,
    REVERSION,
    VOLATILITY_NOISE,
)

# The random stream of simulated prices. Changing the tag changes every price.
_PURPOSE = "trading-market"
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
        self._convexity = settings.convexity

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
        size = volatility * (JUMP_MEAN + JUMP_DEVIATION * noise.jump_size)
        jump = torch.where(noise.jump <= JUMPS_PER_DAY, size, 0.0) - JUMPS_PER_DAY * JUMP_MEAN * volatility
        variance = JUMPS_PER_DAY * (JUMP_MEAN**2 + JUMP_DEVIATION**2) * DAYS_PER_YEAR
        return jump, daily * math.sqrt(1.0 - variance)

    def _moved(self, volatility: Tensor, noise: Noise) -> Tensor:
        """The next day's volatility: its logarithm reverts to the mean, and rises when the price falls."""
        # A standard normal with correlation LEVERAGE to the price's.
        shock = LEVERAGE * noise.price + math.sqrt(1.0 - LEVERAGE**2) * noise.volatility
        pull = REVERSION * (math.log(self.mean_volatility) - volatility.log())
        return volatility * torch.exp(pull + VOLATILITY_NOISE * shock)
