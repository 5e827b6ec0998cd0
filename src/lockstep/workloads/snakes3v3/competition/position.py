"""Board positions as plain lists, as in game logs, and games set up from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, GameRules, snake_bit

Cell = list[int]
"""Row and column."""


@dataclass
class Position:
    """Everything visible on one board."""

    snakes: list[list[Cell]]
    """The cells of each player's snake, head first."""
    directions: list[int]
    """Direction of each snake: 0 up, 1 down, 2 left, 3 right."""
    beans: list[Cell]
    """Oldest first."""
    time: int = 1
    """1 before the first step."""


def position(game: SnakesGame, board: int) -> Position:
    """The position of one board."""

    def cells(numbers: Sequence[int]) -> list[Cell]:
        return [[number // game.rules.width, number % game.rules.width] for number in numbers]

    beans = [cell for cell in game.bean_cells[board].tolist() if cell < game.rules.cells]
    return Position(
        snakes=[cells(body) for body in game.bodies(board)],
        directions=game.direction[:-1, board].tolist(),
        beans=cells(beans),
        time=int(game.time[board]),
    )


def set_up(game: SnakesGame, positions: Sequence[Position]) -> None:
    """Set every board of a game to a position; the random counters are kept."""
    assert len(positions) == game.count
    # Written with numpy on the CPU, then loaded at once: single writes to a GPU are slow.
    state = {name: tensor.cpu() for name, tensor in game.state().items()}
    for name in ("grid", "trail", "head", "tail"):
        state[name].zero_()
    state["beans"].fill_(game.rules.cells)
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    for board, seen in enumerate(positions):
        _check(game.rules, seen)
        _write({name: array[board] for name, array in arrays.items() if array.ndim > 1}, game.rules, seen)
        arrays["time"][board] = seen.time
    game.load(state)


def _write(row: dict[str, NDArray[Any]], rules: GameRules, seen: Position) -> None:
    for player, snake in enumerate(seen.snakes):
        cells = [line * rules.width + column for line, column in snake]
        row["grid"][cells] = snake_bit(player)
        row["trail"][cells[1:], 0] = cells[:-1]
        # The time, modulo 256, at which the head left each cell: a step earlier for each cell of the body.
        row["trail"][cells, 1] = [(seen.time - place) % 256 for place in range(len(cells))]
        row["head"][player], row["tail"][player] = (cells[0], cells[-1]) if cells else (0, 0)
        row["length"][player], row["direction"][player] = len(cells), seen.directions[player]
    beans = [line * rules.width + column for line, column in seen.beans]
    row["grid"][beans] = BEAN_BIT
    row["beans"][: len(beans)] = beans


def _check(rules: GameRules, seen: Position) -> None:
    cells = [tuple(cell) for snake in [*seen.snakes, seen.beans] for cell in snake]
    for row, column in cells:
        if not (0 <= row < rules.height and 0 <= column < rules.width):
            raise UserError(f"position: cell [{row}, {column}] is not on the board of {rules.height} x {rules.width}")
    if len(set(cells)) < len(cells):
        raise UserError("position: a cell is used twice; each part of a snake and each bean needs its own")
    if len(seen.snakes) != rules.players or len(seen.directions) != rules.players or len(seen.beans) > rules.beans:
        found = f"{len(seen.snakes)} snakes, {len(seen.directions)} directions and {len(seen.beans)} beans"
        raise UserError(f"position: {found}; these rules have {rules.players} players and up to {rules.beans} beans")
