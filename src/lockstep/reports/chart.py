"""Line charts as lists of lines and texts, which `svg` and `png` draw alike."""

import math
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import Literal

from lockstep.reporting.drawing.ticks import round_ticks
from lockstep.reports import curves
from lockstep.reports.number_text import short, tick_texts
from lockstep.reports.recorded_run import Curve

COLOURS = 8
"""Colours of curves; with more of them they repeat."""
WIDTH, HEIGHT = 440, 250
FONT_SIZE = 11
# Pixels of a drawing.
_LEFT, _RIGHT, _BOTTOM, _HEAD, _LEGEND_LINE = 50, 14, 34, 30, 15
_CHARACTER = 6.2  # the average width of one, for placing what follows a text
_LONGEST_LABEL = 34
_MOST_POINTS = 600
_FAR = 0.25
_DASH = 7.0


@dataclass(frozen=True)
class Series:
    """One curve of a chart."""

    label: str
    curve: Curve
    colour: int


@dataclass(frozen=True)
class Chart:
    """Curves of one metric, by steps."""

    title: str
    series: tuple[Series, ...]
    legend: bool = False
    """Whether the curves need their names: there are several runs, though not all may have this metric."""

    @property
    def overlaps(self) -> bool:
        """Whether a curve lies exactly on another one."""
        return any(one.curve == other.curve for one, other in combinations(self.series, 2))


Ink = Literal["grid", "axis", "raw", "line"]


@dataclass(frozen=True)
class Stroke:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    ink: Ink
    colour: int = 0


@dataclass(frozen=True)
class Label:
    """A text; `anchor` says which part of it is at x, and y is its baseline."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    kind: Literal["title", "tick", "legend"] = "tick"


@dataclass
class Drawing:
    """What there is to draw, in this order."""

    width: int
    height: int
    strokes: list[Stroke] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)


def draw(chart: Chart) -> Drawing:
    """Lay out a chart: title, legend or last value, axes with round ticks, curves."""
    drawing = Drawing(WIDTH, HEIGHT)
    drawing.labels.append(Label(2, 16, _cut(chart.title), kind="title"))
    top = _HEAD + 8
    if not chart.legend:
        last = f"last {short(chart.series[0].curve.values[-1])}"
        drawing.labels.append(Label(WIDTH - _RIGHT, 16, last, "end"))
    else:
        top = _legend(drawing, chart.series)
    # A tall legend makes the picture taller, not the curves flatter.
    drawing.height += max(top - _HEAD - _LEGEND_LINE, 0)
    plot = _Plot(chart, top, drawing.height - _BOTTOM)
    plot.axes(drawing)
    plot.curves(drawing)
    return drawing


def _legend(drawing: Drawing, series: tuple[Series, ...]) -> int:
    """Add the name of each curve behind a dash of its colour; returns where the plot may begin."""
    x, y = 2.0, float(_HEAD + 4)
    for item in series:
        text = _cut(item.label)
        width = 18 + _CHARACTER * len(text) + 12
        if x > 2 and x + width > WIDTH:
            x, y = 2.0, y + _LEGEND_LINE
        drawing.strokes.append(Stroke(((x, y - 4), (x + 13, y - 4)), "line", item.colour))
        drawing.labels.append(Label(x + 18, y, text, kind="legend"))
        x += width
    return int(y) + 12


class _Plot:
    """The area of the curves, and where a step and a value are in it."""

    def __init__(self, chart: Chart, top: int, bottom: int) -> None:
        self._chart, self._top, self._bottom = chart, top, bottom
        steps = [step for item in chart.series for step in item.curve.steps]
        values = [value for item in chart.series for value in item.curve.values]
        # The axis begins at zero unless the curves begin far from it, as those of a branch do; a single point has no
        # stretch of its own that an axis could show.
        first = min(steps) if max(steps) > min(steps) > _FAR * max(steps) else 0
        self._steps = (first, max(max(steps), first + 1))
        low, high = min(values), max(values)
        # Some room above and below; a constant curve runs through the middle.
        margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
        self._values = (low - margin, high + margin)

    def _x(self, step: float) -> float:
        first, last = self._steps
        return round(_LEFT + (step - first) / (last - first) * (WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, value: float) -> float:
        low, high = self._values
        return round(self._bottom - (value - low) / (high - low) * (self._bottom - self._top), 1)

    def axes(self, drawing: Drawing) -> None:
        """Add the grid, the ticks with their numbers, and the name of the horizontal axis."""
        ticks = round_ticks(*self._values, about=6)
        for value, text in zip(ticks, tick_texts(ticks), strict=True):
            y = self._y(value)
            drawing.strokes.append(Stroke(((_LEFT, y), (WIDTH - _RIGHT, y)), "grid"))
            drawing.labels.append(Label(_LEFT - 6, y + 4, text, "end"))
        drawing.strokes.append(Stroke(((_LEFT, self._bottom), (WIDTH - _RIGHT, self._bottom)), "axis"))
        ticks = round_ticks(*self._steps, about=6)
        for step, text in zip(ticks, tick_texts(ticks), strict=True):
            x = self._x(step)
            drawing.strokes.append(Stroke(((x, self._bottom), (x, self._bottom + 4)), "axis"))
            drawing.labels.append(Label(x, self._bottom + 16, text, "middle"))
        drawing.labels.append(Label(WIDTH - _RIGHT, self._bottom + 30, "steps", "end"))

    def curves(self, drawing: Drawing) -> None:
        """Add every curve; a noisy one is drawn thin, with its running mean over it.

        One that lies exactly on an earlier one is dashed, so that both can be seen: the same run on more ranks.
        """
        means: list[Stroke] = []
        for number, item in enumerate(self._chart.series):
            mean = curves.smoothed(item.curve)
            if mean:
                drawing.strokes.append(self._stroke(item, item.curve, "raw"))
            stroke = self._stroke(item, mean or item.curve, "line")
            # Not by the points of the picture, in which a difference by rounding does not show.
            hidden = any(item.curve == other.curve for other in self._chart.series[:number])
            means += _dashes(stroke) if hidden else [stroke]
        drawing.strokes += means

    def _stroke(self, item: Series, curve: Curve, ink: Ink) -> Stroke:
        thin = curves.thinned(curve, _MOST_POINTS)
        points = tuple((self._x(step), self._y(value)) for step, value in zip(thin.steps, thin.values, strict=True))
        # A line needs two ends: a single log point is drawn as a short dash.
        if len(points) == 1:
            points = ((points[0][0] - 2, points[0][1]), (points[0][0] + 2, points[0][1]))
        return Stroke(points, ink, item.colour)


def _dashes(stroke: Stroke) -> list[Stroke]:
    """Pieces of a line with gaps as long as they are."""
    pieces: list[list[tuple[float, float]]] = [[stroke.points[0]]]
    done = 0.0
    for (x, y), (to_x, to_y) in pairwise(stroke.points):
        length, here = math.hypot(to_x - x, to_y - y), 0.0
        while length - here > _DASH - done:
            here += _DASH - done
            place = (x + (to_x - x) * here / length, y + (to_y - y) * here / length)
            pieces[-1].append(place)
            pieces.append([place])
            done = 0.0
        done += length - here
        pieces[-1].append((to_x, to_y))
    return [replace(stroke, points=tuple(piece)) for piece in pieces[::2] if len(piece) > 1]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"
