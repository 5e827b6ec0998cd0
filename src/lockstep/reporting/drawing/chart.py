"""Line charts over days, painted with Pillow, which imports much faster than Matplotlib."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lockstep.reporting.drawing import pens
from lockstep.reporting.drawing.drawing import Kind
from lockstep.reporting.drawing.pens import Colour
from lockstep.reporting.drawing.ticks import decimals_of, round_ticks

Line = Sequence[float] | NDArray[np.float64]
Points = list[tuple[float, float]]

_ON_LIGHT: tuple[Colour, ...] = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (140, 86, 75),
    (127, 127, 127),
    (23, 190, 207),
)
_ON_DARK: tuple[Colour, ...] = ((96, 165, 250), (248, 113, 113), (74, 222, 128), (251, 146, 60), (192, 132, 252))
# Pixels around the plot, for axis labels, title and day numbers.
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 38, 42
_FINE = 3
"""Lines are drawn this much larger and then shrunk, which smooths their edges: Pillow's own are jagged."""
"""Steps between ticks, times a power of ten."""


@dataclass(frozen=True)
class Theme:
    """The colours of a chart."""

    ground: Colour
    ink: Colour
    faint: Colour
    grid: Colour
    lines: Sequence[Colour]


LIGHT = Theme((255, 255, 255), (36, 40, 48), (96, 102, 112), (230, 232, 236), _ON_LIGHT)
DARK = Theme(pens.GROUND, pens.INK, pens.FAINT, (42, 46, 58), _ON_DARK)


@dataclass(frozen=True)
class Band:
    """A shaded area between two lines."""

    low: Line
    high: Line
    of: str
    """The name of the line whose colour it has."""


@dataclass(frozen=True)
class Marks:
    """Days of one kind, such as those with a purchase, each marked by a triangle on the first line."""

    name: str
    days: Sequence[int]
    colour: Colour
    up: bool = True
    """Whether the triangle points up, from below the line, or down from above it."""


@dataclass(frozen=True)
class Chart:
    """Lines by name over the days 0, 1, ..., with round ticks and a legend."""

    kind: ClassVar[Kind] = "charts"
    title: str
    lines: Mapping[str, Line]
    days: int = 0
    """Length of the axis; 0 = that of the lines."""
    band: Band | None = None
    marks: Sequence[Marks] = ()
    size: tuple[int, int] = (900, 460)
    theme: Theme = LIGHT

    def draw(self) -> Image.Image:
        """The chart as Pillow's image."""
        frame = self._frame()
        picture = Image.new("RGB", self.size, self.theme.ground)
        pen = ImageDraw.Draw(picture)
        self._axes(pen, frame)
        # The lines are their own layer, whose opacity is its smoothed edges.
        picture = Image.alpha_composite(picture.convert("RGBA"), self._layer(frame)).convert("RGB")
        pen = ImageDraw.Draw(picture)
        title = pens.shortened(self.title, self.size[0] - _LEFT - _RIGHT, 14)
        pen.text((_LEFT, _TOP // 2), title, fill=self.theme.ink, font=pens.font(14), anchor="lm")
        if len(self.lines) > 1 or self.marks:
            self._legend(pen)
        return picture

    def paint(self) -> NDArray[np.uint8]:
        """(height, width, 3) red, green, blue."""
        return np.asarray(self.draw())

    def to_json(self) -> dict[str, Any]:
        """Names and values; a page paints them at its own size."""
        return {
            "kind": self.kind,
            "charts": [
                {
                    "title": self.title,
                    "days": self._days(),
                    "lines": [{"name": name, "values": _short(line)} for name, line in self.lines.items()],
                    "marks": [
                        {"name": marks.name, "days": list(marks.days), "colour": list(marks.colour), "up": marks.up}
                        for marks in self.marks
                    ],
                }
            ],
        }

    @property
    def _colours(self) -> dict[str, Colour]:
        known = self.theme.lines
        return {name: known[number % len(known)] for number, name in enumerate(self.lines)}

    def _everything(self) -> list[Line]:
        return [*self.lines.values(), *((self.band.low, self.band.high) if self.band else ())]

    def _days(self) -> int:
        # At least one day: a chart of a single point must not divide by zero.
        return max(self.days or max(len(line) for line in self._everything()) - 1, 1)

    def _frame(self) -> "_Frame":
        values = np.concatenate([np.asarray(line, dtype=np.float64) for line in self._everything()])
        low, high = float(values.min()), float(values.max())
        # A constant needs a range of its own.
        margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.05
        # About one tick in 50 pixels; the range ends at ticks, so that it moves rarely while a line grows.
        ticks = round_ticks(low - margin, high + margin, (self.size[1] - _TOP - _BOTTOM) / 50, outside=True)
        return _Frame(self.size, ticks, self._days())

    def _axes(self, pen: ImageDraw.ImageDraw, frame: "_Frame") -> None:
        width, height = self.size
        small, faint = pens.font(12), self.theme.faint
        for value in frame.ticks:
            pen.line([(_LEFT, frame.y(value)), (width - _RIGHT, frame.y(value))], fill=self.theme.grid)
            pen.text((_LEFT - 8, frame.y(value)), written(value, frame.step), fill=faint, font=small, anchor="rm")
        for day in round_ticks(0, frame.days, (width - _LEFT - _RIGHT) / 90, whole=True):
            pen.text((frame.x(day), height - _BOTTOM + 6), f"{day:,.0f}", fill=faint, font=small, anchor="ma")
        pen.text((width - _RIGHT, height - 3), "day", fill=faint, font=small, anchor="rd")

    def _layer(self, frame: "_Frame") -> Image.Image:
        """Band, lines and marks on a transparent ground, with smooth edges."""
        layer = Image.new("RGBA", (self.size[0] * _FINE, self.size[1] * _FINE), (0, 0, 0, 0))
        pen, colours = ImageDraw.Draw(layer), self._colours
        if self.band:
            # Alpha: lines below the band are seen through it.
            fill = (*colours[self.band.of], 46)
            pen.polygon(frame.points(self.band.low, _FINE) + frame.points(self.band.high, _FINE)[::-1], fill=fill)
        # The first line is drawn last: it is the one that the chart is about.
        for name, line in reversed(list(self.lines.items())):
            points = frame.points(line, _FINE)
            if len(line) > 1:
                width = 3 if name == next(iter(self.lines)) and len(self.lines) > 1 else 2
                pen.line(points, fill=(*colours[name], 255), width=width * _FINE, joint="curve")
            # A joint has no round cap of its own, and a single point no line.
            _dot(pen, points[-1], 1.5 * _FINE, (*colours[name], 255))
        for marks in self.marks:
            marked = frame.points(next(iter(self.lines.values())), _FINE)
            for day in marks.days:
                pen.polygon(_triangle(marked[day], 5 * _FINE, marks.up), fill=(*marks.colour, 255))
        return layer.resize(self.size, Image.Resampling.BOX)

    def _legend(self, pen: ImageDraw.ImageDraw) -> None:
        """Names down the left edge of the plot; marks in one line above it, at the right."""
        for number, (name, colour) in enumerate(self._colours.items()):
            if len(self.lines) == 1:
                break
            x, y = _LEFT + 10, _TOP + 14 + 18 * number
            pen.line([(x, y), (x + 18, y)], fill=colour, width=3)
            pen.text((x + 24, y), name.replace("_", " "), fill=self.theme.ink, font=pens.font(12), anchor="lm")
        right = float(self.size[0] - _RIGHT)
        for marks in reversed(self.marks):
            right -= pens.width_of(marks.name, 12)
            pen.text((right, _TOP // 2), marks.name, fill=self.theme.ink, font=pens.font(12), anchor="lm")
            tip = (right - 9, _TOP / 2 + (-10 if marks.up else 10))
            pen.polygon(_triangle(tip, 5, marks.up), fill=marks.colour)
            right -= 32


@dataclass(frozen=True)
class Charts:
    """Charts of one size, one above the other."""

    kind: ClassVar[Kind] = "charts"
    charts: Sequence[Chart]

    def paint(self) -> NDArray[np.uint8]:
        """(height, width, 3) red, green, blue."""
        return np.concatenate([chart.paint() for chart in self.charts])

    def to_json(self) -> dict[str, Any]:
        """The same kind as that of one chart."""
        return {"kind": self.kind, "charts": [part for chart in self.charts for part in chart.to_json()["charts"]]}


@dataclass(frozen=True)
class _Frame:
    """Converts days and values to pixels."""

    size: tuple[int, int]
    ticks: Sequence[float]
    """Of the values; the first and the last are the ends of the axis."""
    days: int

    @property
    def step(self) -> float:
        return self.ticks[1] - self.ticks[0]

    def x(self, day: float) -> float:
        return _LEFT + day / self.days * (self.size[0] - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        # Pixels count from the top.
        part = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return self.size[1] - _BOTTOM - part * (self.size[1] - _TOP - _BOTTOM)

    def points(self, line: Line, fine: int = 1) -> Points:
        return [(self.x(day) * fine, self.y(float(value)) * fine) for day, value in enumerate(line)]


def written(value: float, step: float) -> str:
    """A tick's value, with the decimals that its distance from the next one needs."""
    decimals = decimals_of(step)
    # -0.0 after rounding would be shown as -0.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def _short(line: Line) -> list[float]:
    """Values with as many digits as a chart can show."""
    return [float(f"{float(value):.7g}") for value in line]


def _dot(pen: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, fill: tuple[int, ...]) -> None:
    pen.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), fill=fill)


def _triangle(tip: tuple[float, float], size: float, up: bool) -> Points:
    """A triangle whose tip is a little off a point: below it if it points up, above it if it points down."""
    x, y, side = *tip, 1 if up else -1
    return [(x, y + side * size), (x - size, y + side * 2.8 * size), (x + size, y + side * 2.8 * size)]
