"""What a user should know about files of bars: names of columns, days that are missing, and splits. No torch here."""

from collections.abc import Mapping
from datetime import date

import numpy as np
from numpy.typing import NDArray

from lockstep.config.values import shown

LONGEST_CLOSURE = 5
"""Calendar days between two bars around the longest holiday, Easter; after a longer time, days are missing."""
_FACTORS = (1.5, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 50)
"""Usual splits: that many new shares for an old one."""
_CLOSE_TO = 0.05
"""How far, as a logarithm, the overnight change may be from a split's factor: prices move as well."""
_NAMED = 5
"""Entries of a line; a folder may have thousands of symbols."""


def about_layouts(layouts: Mapping[str, str]) -> list[str]:
    """A line for each layout of columns that differs from the plain one; layouts: by the file's name."""
    alike: dict[str, list[str]] = {}
    for name, layout in layouts.items():
        alike.setdefault(layout, []).append(name)
    return [f"{_some([shown(name) for name in names])}: {layout}" for layout, names in alike.items() if layout]


def about_days(days: Mapping[str, NDArray[np.int64]], without_prices: Mapping[str, NDArray[np.int64]]) -> str:
    """Days that a symbol lacks: those that others have, rows without prices, and long gaps; empty if there are none."""
    everybodys = np.unique(np.concatenate(list(days.values())))
    found = []
    for symbol, own in days.items():
        expected = np.union1d(everybodys, without_prices[symbol])
        absent = np.setdiff1d(expected[(expected > own[0]) & (expected < own[-1])], own)
        if len(absent):
            found.append(f"{shown(symbol)} {len(absent):,} (first {_day(absent[0])})")
        gaps = np.diff(own)
        if gaps.max() > LONGEST_CLOSURE:
            place = int(gaps.argmax())
            found.append(f"{shown(symbol)} none between {_day(own[place])} and {_day(own[place + 1])}")
    return f"missing days: {_some(found)}" if found else ""


def about_splits(bars: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64]]]) -> str:
    """Overnight changes that look like splits which the prices are not adjusted for; empty if there are none."""
    # From 2:1 to 1:2 in logarithms; a row for each factor, both ways.
    factors = np.log(np.array([*_FACTORS, *(1 / factor for factor in _FACTORS)]))
    names = [*(f"{factor:g}:1" for factor in _FACTORS), *(f"1:{factor:g}" for factor in _FACTORS)]
    found = []
    for symbol, (days, table) in bars.items():
        change = np.log(table[:-1, 3] / table[1:, 0])
        distance = np.abs(change[None] - factors[:, None])
        for place in np.flatnonzero(distance.min(0) < _CLOSE_TO):
            found.append(f"{shown(symbol)} {names[int(distance[:, place].argmin())]} on {_day(days[place + 1])}")
    return (
        f"overnight changes that look like splits, for which prices are not adjusted: {_some(found)}" if found else ""
    )


def _some(found: list[str]) -> str:
    rest = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def _day(number: int) -> date:
    return date.fromordinal(int(number))
