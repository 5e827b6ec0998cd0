"""Log points as columns of numbers, and what a chart needs of them: smoothed, cut to a range, as a band."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from lockstep.reporting.drawing.curves import moving_average
from lockstep.storage.run_directory import LARGEST_VALUE, WEIGHTS_HASH
from lockstep.untrusted import LATEST, is_counter, is_number

Axis = Literal["step", "time"]
# Beyond these limits a log is not one that a run wrote in any useful time, and is read no further.
_MOST_TAGS = 2000
_MOST_POINTS = 1_000_000
_LONGEST_TAG = 200
_LONGEST_HASH = 64


@dataclass
class Columns:
    """The log points of a run, by tag."""

    steps: array = field(default_factory=lambda: array("d"))
    times: array = field(default_factory=lambda: array("d"))
    tags: dict[str, array] = field(default_factory=dict)
    """As long as `steps` once `padded`; NaN where a point lacks the tag."""
    hashes: dict[int, str] = field(default_factory=dict)
    """The hash of the weights by step."""

    def __len__(self) -> int:
        """Count the log points."""
        return len(self.steps)

    def add(self, point: Any) -> None:
        """Add a parsed log point; what is none, or goes back in steps, is left out."""
        if len(self) >= _MOST_POINTS or not isinstance(point, dict):
            return
        step, when = point.get("step"), point.get("time")
        if not is_counter(step) or (len(self) and step <= self.steps[-1]):
            return
        # Clocks are set back now and then; a curve by time must not.
        when = float(when) if is_number(when, LATEST) else 0.0
        self.times.append(max(when, self.times[-1]) if len(self) else when)
        self.steps.append(step)
        fingerprint = point.get(WEIGHTS_HASH)
        if isinstance(fingerprint, str) and fingerprint.isalnum():
            self.hashes[step] = fingerprint[:_LONGEST_HASH]
        known, row = self.tags, len(self) - 1
        # Hundreds of thousands of points with dozens of tags each: this loop is what reading a long log takes.
        for tag, value in point.items():
            if type(value) is float or (type(value) is int and tag not in ("step", "time")):
                column = known.get(tag)
                if column is None and (column := self._new(tag)) is None:
                    continue
                if len(column) < row:
                    column.extend([math.nan] * (row - len(column)))
                column.append(value if -LARGEST_VALUE < value < LARGEST_VALUE else math.nan)

    def _new(self, tag: str) -> array | None:
        """A column for a tag that was not seen before; None if it is no tag of ours."""
        if tag == "time" or len(self.tags) >= _MOST_TAGS or len(tag) > _LONGEST_TAG or not tag.isprintable():
            return None
        return self.tags.setdefault(tag, array("d"))

    def latest(self, tag: str, points: int = 1, absent: float | None = None) -> float | None:
        """The mean of a tag over the last log points; None if none of them has it.

        absent: what a point without the tag counts as; None = it does not count.
        """
        first = max(len(self) - points, 0)
        found = [value for value in self.tags.get(tag, ())[first:] if math.isfinite(value)]
        if not found:
            return None
        if absent is not None:
            found += [absent] * (len(self) - first - len(found))
        return sum(found) / len(found)

    def places(self, axis: Axis) -> tuple[array, float]:
        """Where the log points are on an axis, and what is its zero."""
        if axis == "step":
            return self.steps, 0.0
        return self.times, self.times[0] if len(self) else 0.0

    def curve(self, tag: str, axis: Axis, smooth: int = 1, since: float = -math.inf) -> tuple[np.ndarray, np.ndarray]:
        """One tag over steps, or over seconds since the first log point; points without a value are left out.

        smooth: log points of a centred moving average. since: the first place that is asked for.
        """
        if tag not in self.tags:
            return np.empty(0), np.empty(0)
        places, origin = self.places(axis)
        # An average needs what is before; else only the end is looked at. One more, since a sum may be rounded up.
        first = max(bisect_left(places, since + origin) - 1, 0) if smooth == 1 else 0
        # Copies: an array whose buffer is exported cannot grow, and the next log point may come at any time.
        values = np.array(self.tags[tag][first:])
        x = np.array(places[first : first + len(values)]) - origin
        there = np.isfinite(values)
        x, values = x[there], moving_average(values[there], smooth)
        asked = np.searchsorted(x, since)
        return x[asked:], values[asked:]

    def where_positive(self, tag: str) -> list[int]:
        """The log points, by number, at which a tag is above zero."""
        return np.flatnonzero(np.array(self.tags.get(tag, ())) > 0).tolist()


def cut(x: np.ndarray, y: np.ndarray, span: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The points of a range and one on either side, so that lines run to the edge of the picture."""
    first, last = np.searchsorted(x, span[0]) - 1, np.searchsorted(x, span[1], side="right") + 1
    return x[max(first, 0) : last], y[max(first, 0) : last]


def band(curves: Sequence[tuple[np.ndarray, np.ndarray]], points: int) -> dict[str, list[float | None]]:
    """Mean, lowest and highest of several runs' curves at the same places of the axis.

    A run takes part where it has values: a band ends where the longest run does.
    """
    curves = [(x, y) for x, y in curves if len(x)]
    if not curves:
        return {"x": [], "y": [], "low": [], "high": []}
    grid = np.linspace(min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves), points)
    rows = np.stack([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in curves])
    there = np.isfinite(rows)
    counts = there.sum(axis=0)
    grid, rows, there, counts = grid[counts > 0], rows[:, counts > 0], there[:, counts > 0], counts[counts > 0]
    return {
        "x": grid.tolist(),
        "y": (np.where(there, rows, 0.0).sum(axis=0) / counts).tolist(),
        "low": np.where(there, rows, np.inf).min(axis=0).tolist(),
        "high": np.where(there, rows, -np.inf).max(axis=0).tolist(),
    }
