"""Drawings as SVG inside a page, whose style sheet gives the colours of a light and a dark theme."""

from html import escape

from lockstep.reports.chart import FONT_SIZE, Drawing, Label, Stroke


def svg(drawing: Drawing, description: str) -> str:
    """The drawing as an element that takes the width it is given."""
    parts = [*map(_stroke, drawing.strokes), *map(_label, drawing.labels)]
    box = f"0 0 {drawing.width} {drawing.height}"
    head = f'<svg viewBox="{box}" font-size="{FONT_SIZE}" role="img" aria-label="{escape(description)}">'
    return f"{head}{''.join(parts)}</svg>"


def _stroke(stroke: Stroke) -> str:
    style = f"{stroke.ink} c{stroke.colour}" if stroke.ink in ("raw", "line") else stroke.ink
    points = " ".join(f"{x:.6g},{y:.6g}" for x, y in stroke.points)
    return f'<polyline class="{style}" points="{points}"/>'


def _label(label: Label) -> str:
    place = f'x="{label.x:g}" y="{label.y:g}" text-anchor="{label.anchor}"'
    return f'<text class="{label.kind}" {place}>{escape(label.text)}</text>'
