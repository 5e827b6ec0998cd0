"""Round numbers for the axes of charts."""

import math

_FACTORS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""What powers of ten are multiplied by to be round steps."""


def round_ticks(low: float, high: float, about: float, outside: bool = False, whole: bool = False) -> list[float]:
    """Round numbers from low to high, at most about this many.

    `outside`: the first and last enclose low and high. `whole`: without fractions, as for days.
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(about, 1.0)
    if whole:
        rough = max(rough, 1.0)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [factor * power for factor in _FACTORS if factor * power >= rough * (1 - 1e-9)]
    step = next(step for step in steps if not whole or step.is_integer())
    # The small part keeps a tick that rounding moved past its own end.
    first, last = (math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9))
    if not outside:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def decimals_of(step: float) -> int:
    """The decimals that numbers this far apart need."""
    scaled = (step * 10**places for places in range(9))
    return next((places for places, number in enumerate(scaled) if abs(number - round(number)) < 1e-6), 9)
