"""One board as a picture or as text."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lockstep.workloads.snake.env import DOWN, LEFT, RIGHT, UP, SnakeEnv

Colour = tuple[int, int, int]

FOOD, BODY, HEAD = (255, 0, 0), (0, 200, 0), (0, 255, 0)
"""Red, green, blue; free cells are black."""

_LINES = {
    frozenset({LEFT, RIGHT}): "━",
    frozenset({UP, DOWN}): "┃",
    frozenset({RIGHT, DOWN}): "┏",
    frozenset({LEFT, DOWN}): "┓",
    frozenset({RIGHT, UP}): "┗",
    frozenset({LEFT, UP}): "┛",
    frozenset({LEFT}): "╸",
    frozenset({RIGHT}): "╺",
    frozenset({UP}): "╹",
    frozenset({DOWN}): "╻",
}
"""How a body cell is drawn, by the sides on which the snake continues."""


def frame(env: SnakeEnv, board: int, scale: int = 20) -> NDArray[np.uint8]:
    """Paint one board as an RGB picture (N*scale, N*scale, 3), each cell a square of scale pixels."""
    size = env.rules.grid_size
    picture = np.zeros((size * size, 3), dtype=np.uint8)
    for cell, colour in _colours(env, board).items():
        picture[cell] = colour
    return picture.reshape(size, size, 3).repeat(scale, axis=0).repeat(scale, axis=1)


def text(env: SnakeEnv, board: int, color: bool = False) -> str:
    """Draw one board for a terminal, the snake as one line from tail to head; ANSI colours only if asked."""
    size = env.rules.grid_size
    looks = ["· "] * (size * size)
    sides = _sides(env, board)
    for cell, colour in _colours(env, board).items():
        mark = {FOOD: "◆", HEAD: "●"}.get(colour) or _LINES[frozenset(sides[cell])]
        # A cell is two characters wide; the line continues into the second one if the snake does.
        look = mark + ("━" if RIGHT in sides.get(cell, ()) else " ")
        looks[cell] = _painted(look, colour) if color else look
    edge = "─" * (2 * size + 1)
    rows = ["│ " + "".join(looks[first : first + size]) + "│" for first in range(0, size * size, size)]
    count = f"  length {int(env.length[board])}   steps {int(env.steps[board])} of {env.rules.step_limit}"
    return "\n".join([f"╭{edge}╮", *rows, f"╰{edge}╯", count])


def _colours(env: SnakeEnv, board: int) -> dict[int, Colour]:
    """Map every cell that is not free to its colour; a full board shows no food."""
    return {int(env.food[board]): FOOD} | dict.fromkeys(env.cells(board), BODY) | {int(env.head[board]): HEAD}


def _sides(env: SnakeEnv, board: int) -> dict[int, set[int]]:
    """Map every cell of the snake to the directions in which its neighbours along the snake lie."""
    snake, size = env.cells(board), env.rules.grid_size
    direction = {-1: LEFT, 1: RIGHT, -size: UP, size: DOWN}
    sides: dict[int, set[int]] = {cell: set() for cell in snake}
    for cell, following in pairwise(snake):
        sides[cell].add(direction[following - cell])
        sides[following].add(direction[cell - following])
    return sides


def _painted(look: str, colour: Colour) -> str:
    red, green, blue = colour
    return f"\x1b[38;2;{red};{green};{blue}m{look}\x1b[0m"
