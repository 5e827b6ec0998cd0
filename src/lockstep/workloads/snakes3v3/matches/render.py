"""One board as a picture or as text."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import GameRules

Colour = tuple[int, int, int]

COLOURS: tuple[Colour, ...] = (
    (34, 211, 238),
    (59, 130, 246),
    (129, 140, 248),
    (250, 204, 21),
    (251, 146, 60),
    (248, 113, 113),
)
"""One per player: cool colours for the first team, warm ones for the second."""
_GROUND, _CELL, _BEAN = (16, 18, 24), (26, 29, 38), (74, 222, 128)
_BODY_SHADE = 0.62
"""Brightness of a body relative to its head."""


def frame(game: SnakesGame, board: int, scale: int = 24) -> NDArray[np.uint8]:
    """Paint one board as an RGB picture (height*scale, width*scale, 3); the cells of a snake are connected."""
    rules = game.rules
    picture = np.empty((rules.height * scale, rules.width * scale, 3), np.uint8)
    picture[:] = _GROUND
    # Gaps of a sixteenth of a cell, at least one pixel, show as grid lines.
    inside = [np.arange(size * scale) % scale >= max(scale // 16, 1) for size in (rules.height, rules.width)]
    picture[np.ix_(*inside)] = _CELL

    def fill(first: int, last: int, colour: Colour, inset: int) -> None:
        (top, left), (bottom, right) = (divmod(cell, rules.width) for cell in (min(first, last), max(first, last)))
        rows = slice(top * scale + inset, (bottom + 1) * scale - inset)
        columns = slice(left * scale + inset, (right + 1) * scale - inset)
        picture[rows, columns] = colour

    for cell in game.bean_cells[board].tolist():
        if cell < rules.cells:
            fill(cell, cell, _BEAN, scale // 4)
    for snake, (red, green, blue) in zip(game.bodies(board), COLOURS, strict=False):
        shade = int(_BODY_SHADE * red), int(_BODY_SHADE * green), int(_BODY_SHADE * blue)
        for cell in snake:
            fill(cell, cell, shade, scale // 7)
        for cell, following in pairwise(snake):
            if _touch(rules, cell, following):
                fill(cell, following, shade, scale // 7)
        # The head last, over the band. The loop is empty for a snake that found no room to respawn.
        for cell in snake[:1]:
            fill(cell, cell, (red, green, blue), scale // 7)
    return picture


def text(game: SnakesGame, board: int, color: bool = False) -> str:
    """Draw one board for a terminal: heads are players' numbers, beans are diamonds; `color` adds ANSI colours."""
    rules = game.rules
    # Two characters per cell, because characters are about twice as high as wide.
    looks = ["· "] * rules.cells
    for cell in game.bean_cells[board].tolist():
        if cell < rules.cells:
            looks[cell] = _painted("◆ ", _BEAN) if color else "◆ "
    for player, snake in enumerate(game.bodies(board)):
        for place, cell in enumerate(snake):
            look = f"{player} " if place == 0 else ("■ " if rules.team_of(player) == 0 else "□ ")
            looks[cell] = _painted(look, COLOURS[player]) if color else look
    edge = "─" * (2 * rules.width + 1)
    rows = ["│ " + "".join(looks[first : first + rules.width]) + "│" for first in range(0, rules.cells, rules.width)]
    return "\n".join([f"╭{edge}╮", *rows, f"╰{edge}╯", "  " + _caption(game, board)])


def _caption(game: SnakesGame, board: int) -> str:
    scores = (game.length[:-1, board].long() - game.rules.start_length).tolist()
    teams = " : ".join(str(sum(scores[player] for player in team)) for team in game.rules.teams)
    return f"score {teams}   step {int(game.time[board]) - 1} of {game.rules.max_steps}"


def _touch(rules: GameRules, cell: int, other: int) -> bool:
    """Whether two cells are neighbours in the picture, not across its edge."""
    down, right = abs(cell // rules.width - other // rules.width), abs(cell % rules.width - other % rules.width)
    return down + right == 1


def _painted(look: str, colour: Colour) -> str:
    red, green, blue = colour
    return f"\x1b[38;2;{red};{green};{blue}m{look}\x1b[0m"
