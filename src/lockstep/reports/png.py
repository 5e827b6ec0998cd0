"""Drawings as PNG files, for slides and documents: on white, antialiased."""

from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from lockstep.reports.chart import FONT_SIZE, Drawing, Label, Stroke

LIGHT = ("#2a6fdb", "#d9622b", "#1a9273", "#b0479b", "#8f7100", "#0f8fa5", "#c23b4e", "#6b5fc7")
"""The colours of curves on white; the page's style sheet has the same."""
_INKS = {"grid": "#e6e8eb", "axis": "#8a929c"}
_TEXTS = {"title": "#15191f", "tick": "#5b646f", "legend": "#2b323a"}
_WIDTHS = {"grid": 1.0, "axis": 1.0, "raw": 1.0, "line": 2.0}
_SCALE = 2
"""Pixels of the file for one of the drawing: sharp on a good screen."""
_FINER = 3
"""Drawn so many times larger and then reduced, which smooths the edges."""
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def write_png(drawing: Drawing, path: Path) -> None:
    """Write a drawing to a file."""
    factor = _SCALE * _FINER
    picture = Image.new("RGB", (drawing.width * factor, drawing.height * factor), "white")
    canvas = ImageDraw.Draw(picture)
    for stroke in drawing.strokes:
        _stroke(canvas, stroke, factor)
    for label in drawing.labels:
        _label(canvas, label, factor)
    size = (drawing.width * _SCALE, drawing.height * _SCALE)
    picture.resize(size, Image.Resampling.LANCZOS).save(path)


def _stroke(canvas: ImageDraw.ImageDraw, stroke: Stroke, factor: int) -> None:
    colour = _INKS.get(stroke.ink) or LIGHT[stroke.colour]
    if stroke.ink == "raw":
        colour = _paler(colour)
    points = [(x * factor, y * factor) for x, y in stroke.points]
    canvas.line(points, fill=colour, width=round(_WIDTHS[stroke.ink] * factor), joint="curve")


def _paler(colour: str) -> str:
    """The colour at a third of its strength over white; Pillow's lines have no opacity."""
    levels = [255 - (255 - int(colour[place : place + 2], 16)) // 3 for place in (1, 3, 5)]
    return "#" + "".join(f"{level:02x}" for level in levels)


def _label(canvas: ImageDraw.ImageDraw, label: Label, factor: int) -> None:
    size = (FONT_SIZE + 2 if label.kind == "title" else FONT_SIZE) * factor
    place = (label.x * factor, label.y * factor)
    canvas.text(place, label.text, fill=_TEXTS[label.kind], font=_font(size), anchor=_ANCHORS[label.anchor])


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
