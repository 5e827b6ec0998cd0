"""Curves side by side: at equal steps, in a few numbers, thinned out and smoothed for drawing."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from lockstep.reporting.drawing.curves import downsample, moving_average
from lockstep.reports.recorded_run import Curve
from lockstep.storage.run_summary import RunSummary

LAST_PART = 0.1
"""The part of the common steps over which the last value is averaged: a single log point is noise."""
_LOSSES = ("loss", "error", "nll", "brier", "perplexity", "seconds")
_SMOOTHED_FROM = 60
"""Points from which a running mean is drawn as well."""


@dataclass(frozen=True)
class CurveNumbers:
    """A curve between two steps, in three numbers."""

    last: float
    """The mean over the last tenth of the steps."""
    best: float
    mean: float
    """The area under the curve, divided by the steps: how good it was on the whole way."""


def lower_is_better(tag: str, summary: RunSummary | None = None) -> bool:
    """Whether a metric is better if it is smaller: as the run has recorded it of its score, else by its name."""
    if summary is not None and summary.score_name and tag == f"eval/{summary.score_name}":
        return summary.lower_is_better
    return any(word in tag for word in _LOSSES)


def common_steps(curves: Sequence[Curve]) -> tuple[int, int] | None:
    """The first and the last step between which all curves have values; None if there are fewer than two."""
    if not curves or not all(curve.steps for curve in curves):
        return None
    first, last = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    return (first, last) if first < last else None


def numbers(curve: Curve, first: int, last: int, lower: bool) -> CurveNumbers:
    """What a curve comes to between two steps within its range; values between log points are interpolated."""
    inside = [step for step in curve.steps if first < step < last]
    late = last - LAST_PART * (last - first)
    points = [(float(step), value_at(curve, step)) for step in (first, *inside, last)]
    tail = [(late, value_at(curve, late)), *((step, value) for step, value in points if step > late)]
    best = min if lower else max
    return CurveNumbers(_area(tail), best(value for _, value in points), _area(points))


def value_at(curve: Curve, step: float) -> float:
    """The value at a step, on the straight line between its log points."""
    place = bisect_left(curve.steps, step)
    if place < len(curve.steps) and curve.steps[place] == step:
        return curve.values[place]
    if place in (0, len(curve.steps)):
        return curve.values[min(place, len(curve.steps) - 1)]
    left, right = curve.steps[place - 1], curve.steps[place]
    share = (step - left) / (right - left)
    return curve.values[place - 1] * (1 - share) + curve.values[place] * share


def _area(points: Sequence[tuple[float, float]]) -> float:
    """The mean height of a line through points, by the trapezoidal rule."""
    pairs = list(pairwise(points))
    width = points[-1][0] - points[0][0]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs) / width


def thinned(curve: Curve, most: int) -> Curve:
    """At most about `most` points; no peak is lost."""
    steps, values = downsample(np.array(curve.steps), np.array(curve.values), most)
    return Curve(steps.tolist(), values.tolist())


def smoothed(curve: Curve) -> Curve | None:
    """The running mean over a twenty-fifth of the points; None for a curve with so few that it needs none."""
    count = len(curve.steps)
    if count < _SMOOTHED_FROM:
        return None
    return Curve(curve.steps, moving_average(np.array(curve.values), 2 * (count // 50) + 1).tolist())


def mean_over_steps(curve: Curve | None) -> float | None:
    """The mean of all values of a curve; None if there are none."""
    return fmean(curve.values) if curve and curve.values else None
