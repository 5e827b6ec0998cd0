"""Numbers as people read them: few digits, steps in thousands and millions."""

import math
from datetime import timedelta

from lockstep.reporting.drawing.ticks import decimals_of

# From which number on, what it is divided by, and the letter for that: 1,500 is easier to read than 1.5k.
_SUFFIXES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def tick_texts(ticks: list[float]) -> list[str]:
    """The numbers of an axis, all with as many decimals as their distance needs."""
    largest = max(map(abs, ticks), default=0.0)
    size, suffix = next(((size, suffix) for least, size, suffix in _SUFFIXES if largest >= least), (1.0, ""))
    step = (ticks[1] - ticks[0]) / size if len(ticks) > 1 else largest / size
    if suffix == "" and (largest >= 1e5 or 0 < largest < 1e-3):
        return [f"{tick:.3g}" for tick in ticks]
    decimals = decimals_of(step)
    # Adding zero turns a negative zero into a plain one.
    return [f"{tick / size + 0.0:.{decimals}f}{suffix if tick else ''}" for tick in ticks]


def short(value: float | None) -> str:
    """A measured number in about four digits."""
    if value is None or not math.isfinite(value):
        return "-"
    if value and (abs(value) >= 1e9 or abs(value) < 1e-3):
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """A time span such as 0:01:30."""
    return str(timedelta(seconds=round(min(max(seconds, 0.0), 1e9))))
