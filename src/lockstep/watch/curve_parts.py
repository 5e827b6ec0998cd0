"""The part of a curve that a page does not have yet, so that an open page costs the same however long the log is.

A page gets a cursor with each answer and sends it back with the next question. As long as what it has is still right,
the answer is the end of the curve alone; the page drops its own points from `since` on and appends these.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.reporting.drawing.curves import thin
from lockstep.watch.columns import Axis, Columns, cut


@dataclass(frozen=True)
class View:
    """What a chart shows of every run."""

    axis: Axis = "step"
    smooth: int = 1
    """Log points of a centred moving average."""
    span: tuple[float, float] = (-math.inf, math.inf)
    points: int = 600
    """About how many points a curve may have."""


@dataclass(frozen=True)
class Cursor:
    """What a page has of a run's curves."""

    reading: int
    """Of which reading of the log: a log that was cut is read from the start."""
    width: float
    """The width of the buckets that they were thinned to; 0 = all points."""
    to: float
    """The place on the axis up to which the log was read."""

    def __str__(self) -> str:
        return f"{self.reading}:{self.width!r}:{self.to!r}"

    @staticmethod
    def parse(text: str) -> "Cursor | None":
        """The cursor of a request; None for anything else."""
        try:
            reading, width, to = text.split(":")
            found = Cursor(int(reading), float(width), float(to))
        except ValueError:
            return None
        return found if math.isfinite(found.to) else None


def part(columns: Columns, reading: int, tag: str, view: View, known: Cursor | None) -> dict[str, Any]:
    """The points of one curve that the page lacks; all of them where `since` is None."""
    places, origin = columns.places(view.axis)
    width = _width(places, origin, view)
    now = Cursor(reading, width, places[-1] - origin if len(places) else 0.0)
    since = None
    if known is not None and (known.reading, known.width) == (reading, width) and known.to <= view.span[1]:
        since = _since(columns, tag, view, known)
    x, y = cut(*columns.curve(tag, view.axis, view.smooth, -math.inf if since is None else since), view.span)
    if width:
        x, y = thin(x, y, width)
    return {"x": x.tolist(), "y": y.tolist(), "since": since, "cursor": str(now)}


def _width(places: array, origin: float, view: View) -> float:
    """The width of buckets with which a curve has at most so many points; 0 if it has no more as it is.

    A power of two, so that it stays for as long as the log takes to double, and with it what the page has.
    """
    low, high = view.span
    first, end = bisect_left(places, low + origin), bisect_right(places, high + origin)
    if end - first <= view.points:
        return 0.0
    # Two points of each bucket are kept.
    wanted = (places[end - 1] - places[first]) / max(view.points // 2, 1)
    return 2.0 ** math.ceil(math.log2(wanted)) if wanted > 0 else 1.0


def _since(columns: Columns, tag: str, view: View, known: Cursor) -> float | None:
    """The place from which on a curve may differ from what the page has; None if that is everywhere."""
    since = known.to
    if view.smooth > 1:
        # The last averages of what the page has lacked the values to the right of them.
        x, _ = columns.curve(tag, view.axis)
        changed = int(np.searchsorted(x, since, side="right")) - view.smooth // 2
        # With fewer points than a window is wide, all averages do.
        if changed < view.smooth:
            return None
        since = float(x[changed])
    # The bucket that the last point was in may have another lowest or highest point by now.
    return math.floor(since / known.width) * known.width if known.width else since
