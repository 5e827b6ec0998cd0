"""One board as a picture or as text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lockstep.reporting.drawing.board import Board, Snake, Team
from lockstep.reporting.drawing.pens import Colour
from lockstep.workloads.snakes3v3.engine.game import SnakesGame

COLOURS: tuple[Colour, ...] = (
    (34, 211, 238),
    (59, 130, 246),
    (129, 140, 248),
    (250, 204, 21),
    (251, 146, 60),
    (248, 113, 113),
)
"""One per player: cool colours for the first team, warm ones for the second."""
_BEAN = (74, 222, 128)
_BODY_SHADE = 0.62
"""Brightness of a body relative to its head."""


def frame(game: SnakesGame, board: int, scale: int = 24) -> NDArray[np.uint8]:
    """Paint one board as an RGB picture (height*scale, width*scale, 3); the cells of a snake are connected."""
    return drawing(game, board, scale=scale).paint()


def drawing(game: SnakesGame, board: int, names: Sequence[str] = (), scale: int = 24) -> Board:
    """One board; `names`: who plays each team, for a legend with the teams' scores."""
    rules = game.rules
    scores = [int(game.score[board, list(team)].sum()) for team in rules.teams]
    # A snake that found no room to respawn has no cells.
    return Board(
        width=rules.width,
        height=rules.height,
        snakes=[Snake(body, colour, _shade(colour)) for body, colour in zip(game.bodies(board), COLOURS, strict=False)],
        food=[cell for cell in game.bean_cells[board].tolist() if cell < rules.cells],
        food_colour=_BEAN,
        teams=[
            Team(f"{name} {score}", [COLOURS[player] for player in team])
            for name, score, team in zip(names, scores, rules.teams, strict=False)
        ],
        scale=scale,
    )


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


def legend(game: SnakesGame, names: Sequence[str], color: bool = False) -> str:
    """Who plays each team, for a terminal: the numbers on its heads, the squares of its bodies, its name."""
    parts = []
    for number, (name, team) in enumerate(zip(names, game.rules.teams, strict=True)):
        marks = [f"{player}{'□' if number else '■'}" for player in team]
        looks = [_painted(mark, COLOURS[player]) for mark, player in zip(marks, team, strict=True)] if color else marks
        parts.append(" ".join([*looks, name]))
    return "   ".join(parts)


def _caption(game: SnakesGame, board: int) -> str:
    scores = (game.length[:-1, board].long() - game.rules.start_length).tolist()
    teams = " : ".join(str(sum(scores[player] for player in team)) for team in game.rules.teams)
    return f"score {teams}   step {int(game.time[board]) - 1} of {game.rules.max_steps}"


def _shade(colour: Colour) -> Colour:
    """The colour of a body."""
    red, green, blue = colour
    return int(_BODY_SHADE * red), int(_BODY_SHADE * green), int(_BODY_SHADE * blue)


def _painted(look: str, colour: Colour) -> str:
    red, green, blue = colour
    return f"\x1b[38;2;{red};{green};{blue}m{look}\x1b[0m"
