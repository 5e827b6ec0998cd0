"""Fair option prices in the simulated markets, as tables of implied volatility ("smiles").

A price is fair if it is the expected payoff, not discounted since cash earns nothing: then no policy that ignores what
it sees can earn or lose money before costs, whenever it trades. The tables hold the volatility with which Black-Scholes
gives that price, divided by the market's volatility, and the logarithm of what the price is expected to grow by until
expiry besides the drift (the `lift`). They are computed once, on the CPU in float64, and rounded, so that every rank
has the same bits whatever its number of threads.

N: days to expiry, M: strikes of the chain, K: components of a mixture, Y, Z: places of a table.
"""

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR
from lockstep.workloads.trading.market.settings import EXPIRIES, MONEYNESS

LONGEST = max(EXPIRIES)
JUMPS_PER_DAY = 1 / 30
JUMP_MEAN, JUMP_DEVIATION = -0.08, 0.16  # In units of the yearly volatility: 39 % of a year's variance.
# Of the logarithm of the volatility, per day; the leverage is its correlation with the price.
REVERSION, VOLATILITY_NOISE, LEVERAGE = 0.05, 0.08, -0.7
REACH, PLACES = 8.0, 161
"""Tables reach from -REACH to REACH standard deviations, in so many places."""
VOLATILITY_REACH, VOLATILITY_PLACES, WING_PLACES = 1.25, 33, 65
"""The same for the logarithm of volatility / mean volatility, whose standard deviation is 0.26; and places by strike in
the stochastic market, where smiles are smoother."""
_DECIMALS = 8
# Beyond so many standard deviations, or below that fraction of the price, an option is worth nothing to speak of, and
# its implied volatility is lost in rounding: that of the last strike before it is used.
_FARTHEST, _LEAST_PRICE = 6.0, 1e-7


@dataclass(frozen=True)
class Mixture:
    """A distribution of the log price: a mixture of normal ones, (..., K) each."""

    weight: Tensor
    mean: Tensor
    variance: Tensor

    def lift(self) -> Tensor:
        """(...) the logarithm of the expected price."""
        return torch.logsumexp(self.weight.log() + self.mean + 0.5 * self.variance, -1)

    def smile(self, strike: Tensor, farthest: float) -> Tensor:
        """(..., Z) the total volatility that gives the fair price at strikes whose logarithms are (..., Z)."""
        lift = self.lift()[..., None]
        centre = (self.weight * self.mean).sum(-1, keepdim=True)
        spread = (self.weight * (self.variance + (self.mean - centre).square())).sum(-1, keepdim=True).sqrt()
        strike = lift + (strike - lift).clamp(-farthest * spread, farthest * spread)
        forward = (self.mean + 0.5 * self.variance)[..., None, :]
        deviation = self.variance.sqrt()[..., None, :]
        prices = _out_of_the_money(forward, strike[..., None], deviation, (strike > lift)[..., None])
        return implied(lift, strike, (self.weight[..., None, :] * prices).sum(-1))


def _out_of_the_money(forward: Tensor, strike: Tensor, deviation: Tensor, call: Tensor) -> Tensor:
    """The expected payoff of calls or puts, from logarithms of the expected price and of the strike."""
    d1 = (forward - strike) / deviation + 0.5 * deviation
    # ndtr keeps its relative precision in the tail, where these options are priced.
    sign = torch.where(call, 1.0, -1.0).double()
    above, exercised = torch.special.ndtr(sign * d1), torch.special.ndtr(sign * (d1 - deviation))
    return sign * (forward.exp() * above - strike.exp() * exercised)


def implied(forward: Tensor, strike: Tensor, price: Tensor) -> Tensor:
    """The standard deviation of the log price with which Black-Scholes gives the out-of-the-money price."""
    low, high = torch.full_like(strike, 1e-6), torch.full_like(strike, 20.0)
    # Bisection: prices rise with the deviation. After 42 halvings it is known to 12 decimals.
    for _ in range(42):
        middle = 0.5 * (low + high)
        below = _out_of_the_money(forward, strike, middle, strike > forward) < price
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)


def places(reach: float, count: int) -> Tensor:
    """The coordinates of a table's places."""
    return torch.linspace(-reach, reach, count, dtype=torch.float64)


def _rounded(table: Tensor) -> Tensor:
    return table.round(decimals=_DECIMALS)


@cache
def jump_smiles(volatility: float) -> tuple[Tensor, Tensor]:
    """(46, Z) implied / true volatility by days to expiry and log(forward / strike), and (46,) the lift.

    The unit of log(forward / strike) is the standard deviation without regard to jumps.
    """
    daily = volatility / math.sqrt(DAYS_PER_YEAR)
    share = JUMPS_PER_DAY * (JUMP_MEAN**2 + JUMP_DEVIATION**2) * DAYS_PER_YEAR
    ratio, lift = torch.ones(LONGEST + 1, PLACES, dtype=torch.float64), torch.zeros(LONGEST + 1, dtype=torch.float64)
    for days in range(1, LONGEST + 1):
        jumps = torch.arange(days + 1, dtype=torch.float64)
        chances = [math.comb(days, k) * JUMPS_PER_DAY**k * (1 - JUMPS_PER_DAY) ** (days - k) for k in range(days + 1)]
        law = Mixture(
            torch.tensor(chances, dtype=torch.float64),
            -0.5 * days * daily**2 + (jumps - days * JUMPS_PER_DAY) * JUMP_MEAN * volatility,
            days * daily**2 * (1.0 - share) + jumps * (JUMP_DEVIATION * volatility) ** 2,
        )
        lift[days], scale = law.lift(), daily * math.sqrt(days)
        ratio[days] = law.smile(lift[days] - scale * places(REACH, PLACES), _FARTHEST) / scale
    return _rounded(ratio), _rounded(lift)


@dataclass(frozen=True)
class RegimeSmiles:
    """The smiles of the regime market. Its options are listed at today's price, and quoted as such.

    Who does not know the regime expects both equally on the day an option is listed. Later its price is what can be
    expected by who knows the price on that day and today's, but nothing else: only then a position is fair when it is
    closed early, too. J: days since the option was listed.
    """

    listed_ratio: Tensor
    """(5, M) implied / true volatility of the options that are listed today, by expiry and strike."""
    listed_lift: Tensor
    """(5,)"""
    ratio: Tensor
    """(J, M, Z) the same for the traded expiry, by the price's log change since then, in standard deviations of J days
    without regard to regimes."""
    lift: Tensor
    """(J, Z)"""


@cache
def regime_smiles(
    volatility: float, drift: float, regime_drift: float, regime_length: float, convexity: float, expiry: int
) -> RegimeSmiles:
    """`drift`: a day's, of the price; `convexity`: see `Paths`."""
    daily = volatility / math.sqrt(DAYS_PER_YEAR)
    sums = _sums_of_signs(1.0 / regime_length)
    strikes = torch.tensor(MONEYNESS, dtype=torch.float64).log()

    def ahead(days: int, rising: Tensor) -> Mixture:
        """The law of the log price after some days, by the probability (...) of a rising regime at first."""
        total = torch.arange(-days, days + 1, dtype=torch.float64)
        weight = rising[..., None] * sums[days][1] + (1.0 - rising[..., None]) * sums[days][1].flip(0)
        mean = days * _decline(daily, convexity) + total * regime_drift * daily
        return Mixture(weight, mean.expand_as(weight), torch.full_like(weight, days * daily**2))

    half = torch.tensor(0.5, dtype=torch.float64)
    laws = {days: ahead(days, half) for days in EXPIRIES}
    listed = [law.smile(strikes - drift * days, _FARTHEST) / daily / days**0.5 for days, law in laws.items()]
    ratio = torch.ones(expiry + 1, len(MONEYNESS), PLACES, dtype=torch.float64)
    lift = torch.zeros(expiry + 1, PLACES, dtype=torch.float64)
    for age in range(expiry):
        days, moved = expiry - age, daily * max(age, 1) ** 0.5 * places(REACH, PLACES)
        if age == 0:
            moved = torch.zeros_like(moved)
        surprise = moved - age * (drift + _decline(daily, convexity))
        law = ahead(days, _rising(sums[age], surprise, age, daily, regime_drift))
        lift[age] = law.lift()
        # From today's price; the strikes are fractions of the price when the options were listed.
        each = law.smile((strikes[:, None] - moved - drift * days).t(), _FARTHEST)
        ratio[age] = each.t() / daily / days**0.5
    lifts = torch.stack([law.lift() for law in laws.values()])
    return RegimeSmiles(_rounded(torch.stack(listed)), _rounded(lifts), _rounded(ratio), _rounded(lift))


def _decline(daily: float, convexity: float) -> float:
    """A day's expected log change besides drift and regime."""
    return -(0.5 + convexity) * daily**2


def _sums_of_signs(switch: float) -> list[tuple[Tensor, Tensor]]:
    """For 0 to 45 days: probabilities of the sum of the regime's signs, -days to days.

    The first (2 days + 1, 2): together with the sign after these days, falling or rising, from either with the same
    probability. The second (2 days + 1,): without it, if the first day's sign is rising.
    """
    found = []
    # (first sign, sum, sign of the next day); index 1 = rising.
    law = torch.zeros(2, 1, 2, dtype=torch.float64)
    law[0, 0, 0] = law[1, 0, 1] = 1.0
    change = torch.tensor([[1.0 - switch, switch], [switch, 1.0 - switch]], dtype=torch.float64)
    for _ in range(LONGEST + 1):
        found.append((law.mean(0), law[1].sum(1)))
        after = torch.zeros(2, law.shape[1] + 2, 2, dtype=torch.float64)
        after[:, :-2] += law[:, :, :1] * change[0]
        after[:, 2:] += law[:, :, 1:] * change[1]
        law = after
    return found


def _rising(sums: tuple[Tensor, Tensor], surprise: Tensor, age: int, daily: float, regime_drift: float) -> Tensor:
    """(Z,) the probability that the regime is rising, given the log price's move in `age` days besides its trend."""
    if age == 0:
        return torch.full_like(surprise, 0.5)
    total = torch.arange(-age, age + 1, dtype=torch.float64)
    away = (surprise[:, None] - total * regime_drift * daily) / (daily * math.sqrt(age))
    # Relative to the most likely sum, so that far tails do not underflow to 0 / 0.
    likelihood = -0.5 * away.square()
    joint = (likelihood - likelihood.amax(1, keepdim=True)).exp() @ sums[0]
    return joint[:, 1] / joint.sum(1)


@cache
def volatility_smiles(volatility: float) -> Tensor:
    """(46, Y, Z) implied / current volatility in the stochastic market.

    By days to expiry, log(current / mean volatility) and log(price / strike) in standard deviations of the current
    volatility. By Fourier transforms: the characteristic function of the log price satisfies a recursion in the days.
    """
    mean_daily = volatility / math.sqrt(DAYS_PER_YEAR)
    frequency, weight = _frequencies()
    nodes = VOLATILITY_REACH + 0.5  # The recursion needs room beyond the table.
    count = 40
    grid = nodes * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    shock, chance = np.polynomial.hermite_e.hermegauss(24)
    chance = chance / chance.sum()
    # Given the shock to the volatility, the day's log change is normal.
    daily = mean_daily * np.exp(grid)
    complex_frequency = frequency - 0.5j
    drift = -0.5 * daily[:, None] ** 2 + LEVERAGE * daily[:, None] * shock
    remaining = (1.0 - LEVERAGE**2) * daily**2
    factor = chance[:, None] * np.exp(
        1j * complex_frequency * drift[:, :, None] - 0.5 * complex_frequency**2 * remaining[:, None, None]
    )
    following = np.clip((1.0 - REVERSION) * grid[:, None] + VOLATILITY_NOISE * shock, -nodes, nodes)
    step = _chebyshev(following.ravel(), grid)
    shown = places(VOLATILITY_REACH, VOLATILITY_PLACES).numpy()
    readout = _chebyshev(shown, grid)
    ratio = torch.ones(LONGEST + 1, VOLATILITY_PLACES, WING_PLACES, dtype=torch.float64)
    transform = np.ones((count, len(frequency)), dtype=complex)
    for days in range(1, LONGEST + 1):
        moved = (step @ transform).reshape(count, len(shock), -1)
        transform = (factor * moved).sum(1)
        # One day ahead the log price is normal, and the implied volatility the current one.
        if days > 1:
            own = mean_daily * np.exp(shown) * math.sqrt(days)
            ratio[days] = _from_transform(readout @ transform, frequency, weight, torch.from_numpy(own))
    return _rounded(ratio)


def _frequencies() -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of an integral over frequencies from 0 to 4,096, dense at the low ones (Gauss-Legendre)."""
    x, w = np.polynomial.legendre.leggauss(14)
    ends = [0.0, *(4.0 * 2.0**power for power in range(11))]
    parts = [(0.5 * (b - a) * x + 0.5 * (a + b), 0.5 * (b - a) * w) for a, b in pairwise(ends)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _chebyshev(points: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(P, G) weights that interpolate at points (P,) from values at Chebyshev nodes (G,): the barycentric formula."""
    count = len(grid)
    signs = (-1.0) ** np.arange(count) * np.sin(np.pi * (np.arange(count) + 0.5) / count)
    # A point on a node would divide by zero; so near to it, the formula gives the node's value.
    apart = points[:, None] - grid
    weights = signs / np.where(np.abs(apart) < 1e-13, 1e-13, apart)
    return weights / weights.sum(1, keepdims=True)


def _from_transform(transform: np.ndarray, frequency: np.ndarray, weight: np.ndarray, own: Tensor) -> Tensor:
    """(Y, Z) implied / own deviation (Y,), from characteristic functions (Y, F) at frequencies - i / 2 (Lewis 2001)."""
    # The difference to Black-Scholes with a deviation near to the true one: a small correction is precise.
    curvature = np.log(np.abs(transform[:, 0])) / (-0.5 * (frequency[0] ** 2 + 0.25))
    near = torch.from_numpy(np.sqrt(curvature))
    normal = np.exp(-0.5 * near.numpy()[:, None] ** 2 * (frequency**2 + 0.25))
    strike = -own[:, None] * places(REACH, WING_PLACES)
    waves = np.exp(-1j * strike.numpy()[:, :, None] * frequency)
    difference = ((transform - normal)[:, None, :] * waves).real @ (weight / (frequency**2 + 0.25))
    correction = -torch.from_numpy(difference) * (0.5 * strike).exp() / math.pi
    level = torch.zeros_like(strike)
    price = _out_of_the_money(level, strike, near[:, None], strike > level) + correction
    return _continued(implied(level, strike, price) / own[:, None], price > _LEAST_PRICE)


def _continued(smile: Tensor, valid: Tensor) -> Tensor:
    """A smile (Y, Z) whose invalid ends repeat the last valid value on their side."""
    middle = smile.shape[1] // 2
    for place in range(middle + 1, smile.shape[1]):
        smile[:, place] = torch.where(valid[:, place], smile[:, place], smile[:, place - 1])
        mirrored = smile.shape[1] - 1 - place
        smile[:, mirrored] = torch.where(valid[:, mirrored], smile[:, mirrored], smile[:, mirrored + 1])
    return smile
