"""A board of cells with snakes and food on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lockstep.reporting.drawing.drawing import Kind
from lockstep.reporting.drawing.pens import GROUND, PANEL, Colour, legend

_LEGEND_HEIGHT = 30
"""Pixels above the board."""


@dataclass(frozen=True)
class Snake:
    """One snake, drawn as a connected band so that it can be followed where it lies beside itself."""

    cells: Sequence[int]
    """From the head to the tail, each as row * width + column; empty = not on the board."""
    head: Colour
    body: Colour


@dataclass(frozen=True)
class Team:
    """Who plays some of the snakes, for the legend."""

    name: str
    colours: Sequence[Colour]


@dataclass(frozen=True)
class Board:
    """Cells numbered row by row, with the snakes and the food on them."""

    kind: ClassVar[Kind] = "board"
    width: int
    height: int
    snakes: Sequence[Snake]
    food: Sequence[int]
    food_colour: Colour
    teams: Sequence[Team] = ()
    """For a legend above the board; none = no legend."""
    scale: int = 24
    """Pixels of a cell in a painting."""
    margin: int = 0
    """Pixels around it, except below, where a film has its caption."""

    def paint(self) -> NDArray[np.uint8]:
        """(height, width, 3): the legend, and the board below it."""
        board = self._cells()
        top = _LEGEND_HEIGHT if self.teams else self.margin
        size = board.shape[1] + 2 * self.margin, board.shape[0] + top
        picture = Image.new("RGB", size, GROUND)
        picture.paste(Image.fromarray(board), (self.margin, top))
        if self.teams:
            entries = [(team.name, team.colours) for team in self.teams]
            left = max(self.margin, 8)
            legend(ImageDraw.Draw(picture), left, _LEGEND_HEIGHT / 2, size[0] - 2 * left, entries)
        return np.asarray(picture)

    def _cells(self) -> NDArray[np.uint8]:
        scale = self.scale
        picture = np.empty((self.height * scale, self.width * scale, 3), np.uint8)
        picture[:] = GROUND
        # Gaps of a sixteenth of a cell, at least one pixel, show as grid lines.
        inside = [np.arange(count * scale) % scale >= max(scale // 16, 1) for count in (self.height, self.width)]
        picture[np.ix_(*inside)] = PANEL

        def fill(first: int, last: int, colour: Colour, inset: int) -> None:
            (top, left), (bottom, right) = (divmod(cell, self.width) for cell in (min(first, last), max(first, last)))
            rows = slice(top * scale + inset, (bottom + 1) * scale - inset)
            columns = slice(left * scale + inset, (right + 1) * scale - inset)
            picture[rows, columns] = colour

        for cell in self.food:
            fill(cell, cell, self.food_colour, scale // 4)
        for snake in self.snakes:
            for cell in snake.cells:
                fill(cell, cell, snake.body, scale // 7)
            for cell, following in pairwise(snake.cells):
                if self._touch(cell, following):
                    fill(cell, following, snake.body, scale // 7)
            # The head last, over the band.
            for cell in snake.cells[:1]:
                fill(cell, cell, snake.head, scale // 7)
        return picture

    def _touch(self, cell: int, other: int) -> bool:
        """Whether two cells are neighbours in the picture, not across its edge."""
        down, right = abs(cell // self.width - other // self.width), abs(cell % self.width - other % self.width)
        return down + right == 1

    def to_json(self) -> dict[str, Any]:
        """Cells and colours; a page paints them at its own size."""
        return {
            "kind": self.kind,
            "width": self.width,
            "height": self.height,
            "food": list(self.food),
            "food_colour": list(self.food_colour),
            "snakes": [
                {"cells": list(snake.cells), "head": list(snake.head), "body": list(snake.body)}
                for snake in self.snakes
            ],
            "teams": [{"name": team.name, "colours": [list(colour) for colour in team.colours]} for team in self.teams],
        }
