"""Line charts over days, drawn with Pillow, which imports much faster than Matplotlib."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Line = Sequence[float] | NDArray[np.float64]

_BACKGROUND, _INK, _GRID = (255, 255, 255), (60, 64, 72), (226, 229, 234)
COLOURS: tuple[Colour, ...] = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (140, 86, 75),
    (127, 127, 127),
    (23, 190, 207),
)
# Pixels around the plot, for axis labels, title and day numbers.
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 16, 34, 30
_TICKS = 5


@dataclass(frozen=True)
class Band:
    """A shaded area between two lines."""

    low: Line
    high: Line
    of: str
    """The name of the line whose colour it has."""


def draw(
    lines: Mapping[str, Line], title: str, size: tuple[int, int] = (900, 460), days: int = 0, band: Band | None = None
) -> Image.Image:
    """Draw lines by name over the days 0, 1, ..., with a legend; `days`: length of the axis, 0 = that of the lines."""
    picture = Image.new("RGB", size, _BACKGROUND)
    pen = ImageDraw.Draw(picture)
    everything = [*lines.values(), *((band.low, band.high) if band else ())]
    low, high = _bounds(everything)
    days = days or max(len(line) for line in everything) - 1
    # An axis of at least one day: a chart of a single point must not divide by zero.
    frame = _Frame(size, low, high, max(days, 1))
    colours = dict(zip(lines, _cycle(len(lines)), strict=True))
    # The band first: grid and lines are drawn over it.
    if band:
        pale: Colour = tuple(round(255 - (255 - part) * 0.18) for part in colours[band.of])  # type: ignore[assignment]
        pen.polygon(frame.points(band.low) + frame.points(band.high)[::-1], fill=pale)
    _axes(pen, frame)
    for name, line in lines.items():
        if len(line) > 1:
            pen.line(frame.points(line), fill=colours[name], width=2, joint="curve")
    pen.text((_LEFT, _TOP // 2), title, fill=_INK, font=_font(14), anchor="lm")
    _legend(pen, frame, colours)
    return picture


@dataclass(frozen=True)
class _Frame:
    """Converts days and values to pixels."""

    size: tuple[int, int]
    low: float
    high: float
    days: int

    def x(self, day: float) -> float:
        return _LEFT + day / self.days * (self.size[0] - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        # Pixels count from the top.
        part = (value - self.low) / (self.high - self.low)
        return self.size[1] - _BOTTOM - part * (self.size[1] - _TOP - _BOTTOM)

    def points(self, line: Line) -> list[tuple[float, float]]:
        return [(self.x(day), self.y(float(value))) for day, value in enumerate(line)]


def _bounds(lines: Sequence[Line]) -> tuple[float, float]:
    """The lowest and highest value with a margin; never equal, so that `_Frame.y` can divide by their difference."""
    values = np.concatenate([np.asarray(line, dtype=np.float64) for line in lines])
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return low - margin, high + margin


def _axes(pen: ImageDraw.ImageDraw, frame: _Frame) -> None:
    width, height = frame.size
    for number in range(_TICKS):
        value = frame.low + (frame.high - frame.low) * number / (_TICKS - 1)
        pen.line([(_LEFT, frame.y(value)), (width - _RIGHT, frame.y(value))], fill=_GRID)
        pen.text(
            (_LEFT - 8, frame.y(value)),
            f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}",
            fill=_INK,
            font=_font(11),
            anchor="rm",
        )
        day = frame.days * number / (_TICKS - 1)
        pen.text((frame.x(day), height - _BOTTOM + 6), f"{day:.0f}", fill=_INK, font=_font(11), anchor="ma")


def _legend(pen: ImageDraw.ImageDraw, frame: _Frame, colours: Mapping[str, Colour]) -> None:
    for number, (name, colour) in enumerate(colours.items()):
        x, y = _LEFT + 10, _TOP + 12 + 16 * number
        pen.line([(x, y), (x + 18, y)], fill=colour, width=3)
        pen.text((x + 24, y), name.replace("_", " "), fill=_INK, font=_font(11), anchor="lm")


def _cycle(count: int) -> list[Colour]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
