"""Means with intervals that cover the true mean in 95 of 100 cases, by Student's t distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

# The 97.5% quantile for 1 to 10 degrees of freedom; above that the series in `t_quantile` has four correct digits.
_FEW = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_NORMAL = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A mean, or a difference of means, and its 95% interval."""

    mean: float
    low: float | None
    """None if there are too few values for an interval."""
    high: float | None
    count: int
    """Values behind it."""

    @property
    def clear(self) -> bool | None:
        """Whether the interval excludes zero; None without an interval."""
        return None if self.low is None or self.high is None else not self.low <= 0 <= self.high


def t_quantile(freedom: float) -> float:
    """The 97.5% quantile of Student's t distribution; degrees of freedom below 11 are rounded down."""
    assert freedom >= 1
    if freedom < len(_FEW) + 1:
        return _FEW[int(freedom) - 1]
    z = _NORMAL
    # The expansion of Cornish and Fisher in powers of 1 / freedom.
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def mean_of(values: Sequence[float]) -> Estimate | None:
    """The mean of independent values; None without values."""
    if not values:
        return None
    mean = fmean(values)
    if len(values) < 2:
        return Estimate(mean, None, None, len(values))
    reach = t_quantile(len(values) - 1) * math.sqrt(variance(values) / len(values))
    return Estimate(mean, mean - reach, mean + reach, len(values))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """The second mean minus the first, by Welch's method: the two may spread differently. None if either is empty."""
    if not ours or not theirs:
        return None
    mean, count = fmean(theirs) - fmean(ours), len(ours) + len(theirs)
    if len(ours) < 2 or len(theirs) < 2:
        return Estimate(mean, None, None, count)
    parts = [variance(values) / len(values) for values in (ours, theirs)]
    total = sum(parts)
    if total == 0:
        return Estimate(mean, mean, mean, count)
    # Shares of the total, since squares of variances could overflow, or vanish.
    freedom = 1 / sum((part / total) ** 2 / (len(v) - 1) for part, v in zip(parts, (ours, theirs), strict=True))
    reach = t_quantile(max(freedom, 1.0)) * math.sqrt(total)
    return Estimate(mean, mean - reach, mean + reach, count)
