"""Colours, fonts and text that fits, shared by all drawings."""

from collections.abc import Sequence
from functools import cache

from PIL import ImageDraw, ImageFont

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

GROUND, PANEL, INK, FAINT = (16, 18, 24), (26, 29, 38), (214, 218, 224), (139, 147, 160)
"""Of films: behind everything, of a board's cells, of text, and of text that matters less."""
SMALLEST_FONT = 10
"""Pixels; smaller text cannot be read."""
GAP = "   "
"""Separates the parts of a caption; lines are broken there first."""


@cache
def font(size: int) -> Font:
    """The font of all drawings, which comes with Pillow."""
    return ImageFont.load_default(size)


def width_of(text: str, size: int) -> float:
    """Pixels that a line of text takes."""
    return font(size).getlength(text)


def wrapped(text: str, width: float, size: int, lines: int) -> list[str] | None:
    """The text in at most this many lines of a width, broken between its parts; None if it does not fit."""
    found: list[str] = []
    for part in text.split(GAP):
        longer = f"{found[-1]}{GAP}{part}" if found else part
        if found and width_of(longer, size) <= width:
            found[-1] = longer
        elif width_of(part, size) <= width and len(found) < lines:
            found.append(part)
        else:
            return None
    return found


def shortened(text: str, width: float, size: int) -> str:
    """The text, with its end replaced by an ellipsis if it is wider than this."""
    if width_of(text, size) <= width:
        return text
    # Text is at least a few pixels a letter, so this loop is short.
    while text and width_of(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def fitted(text: str, width: float, size: int, lines: int = 1) -> tuple[list[str], int]:
    """The text in at most this many lines, and the font size at which it fits: the given one, or a smaller one."""
    for smaller in range(size, SMALLEST_FONT - 1, -1):
        if (found := wrapped(text, width, smaller, lines)) is not None:
            return found, smaller
    return [shortened(text, width, SMALLEST_FONT)], SMALLEST_FONT


def legend_width(names: Sequence[str], swatches: Sequence[int], size: int) -> float:
    """Pixels of a legend in one line: each name behind its swatches, which are as wide as the font is high."""
    return sum(width_of(name, size) + (count + 1.5) * size for name, count in zip(names, swatches, strict=True))


def legend(
    pen: ImageDraw.ImageDraw, left: float, middle: float, width: float, entries: Sequence[tuple[str, Sequence[Colour]]]
) -> None:
    """Draw names behind swatches of their colours in one line, centred on the height `middle`."""
    names, swatches = [name for name, _ in entries], [len(colours) for _, colours in entries]
    sizes = range(14, SMALLEST_FONT - 1, -1)
    size = next((size for size in sizes if legend_width(names, swatches, size) <= width), SMALLEST_FONT)
    for name, colours in entries:
        for colour in colours:
            pen.rectangle((left, middle - size * 0.4, left + size * 0.75, middle + size * 0.35), fill=colour)
            left += size
        pen.text((left + size * 0.2, middle), name, fill=INK, font=font(size), anchor="lm")
        left += width_of(name, size) + 1.5 * size
