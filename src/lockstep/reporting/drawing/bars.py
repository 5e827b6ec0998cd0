"""Probabilities as horizontal bars, one of them marked as what happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lockstep.reporting.drawing.drawing import Kind
from lockstep.reporting.drawing.pens import FAINT, GROUND, INK, Colour, fitted, font, shortened

_SIZE = 640, 316
"""Width and height of a painting, in pixels."""
_LEFT, _BAR_LEFT, _LONGEST_BAR = 16, 92, 460
_NOTE_LEFT = 152
_TOP, _ROW, _BAR = 78, 33, 20
_BLUE: Colour = (90, 130, 190)
_GREEN: Colour = (90, 200, 110)


@dataclass(frozen=True)
class Bars:
    """Lines of text, and below them one bar for each outcome."""

    kind: ClassVar[Kind] = "bars"
    lines: Sequence[str]
    names: Sequence[str]
    shares: Sequence[float] | None
    """The probability of each outcome; None = nothing was predicted."""
    actual: int
    """Which outcome it was."""
    note: str = ""
    """A line instead of the bars, if nothing was predicted."""

    def paint(self) -> NDArray[np.uint8]:
        """(height, width, 3)."""
        image = Image.new("RGB", _SIZE, GROUND)
        pen = ImageDraw.Draw(image)
        for number, line in enumerate(self.lines):
            shown = shortened(line, _SIZE[0] - 2 * _LEFT, 16)
            pen.text((_LEFT, 12 + 24 * number), shown, fill=INK if number == 0 else FAINT, font=font(16))
        for number, name in enumerate(self.names):
            self._row(pen, number, name)
        if self.shares is None:
            # To the right of the word that marks the actual outcome.
            (note,), size = fitted(self.note, _SIZE[0] - _NOTE_LEFT - _LEFT, 16)
            pen.text(
                (_NOTE_LEFT, _TOP + _ROW * len(self.names) / 2 - 6), note, fill=FAINT, font=font(size), anchor="lm"
            )
        return np.asarray(image)

    def _row(self, pen: ImageDraw.ImageDraw, number: int, name: str) -> None:
        top, was = _TOP + _ROW * number, number == self.actual
        colour, middle = _GREEN if was else _BLUE, _TOP + _ROW * number + _BAR / 2
        pen.text((_LEFT, middle), name, fill=colour if was else FAINT, font=font(16), anchor="lm")
        right = float(_BAR_LEFT)
        if self.shares is not None:
            right += _LONGEST_BAR * self.shares[number]
            pen.rectangle((_BAR_LEFT, top, right, top + _BAR), fill=colour)
            label = f"{self.shares[number]:.1%}" + ("  actual" if was else "")
            pen.text((right + 8, middle), label, fill=colour if was else FAINT, font=font(14), anchor="lm")
        elif was:
            pen.text((right, middle), "actual", fill=colour, font=font(14), anchor="lm")

    def to_json(self) -> dict[str, Any]:
        """Texts and probabilities."""
        return {
            "kind": self.kind,
            "lines": list(self.lines),
            "names": list(self.names),
            "shares": None if self.shares is None else [round(share, 4) for share in self.shares],
            "actual": self.actual,
            "note": self.note,
        }
