"""Distances between cells on the torus, and what lies on them. E: boards, N: cells, M: target cells."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, FIRST_SNAKE, GameRules


def offsets(rules: GameRules, here: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns from cells here (E, N) to cells there (E, M), the shorter way round: (E, N, M) float32 each."""
    # Looked up by the pair of cells: a gather instead of several operations on (E, N, M) tensors.
    pair = (here[:, :, None] * (rules.cells + 1) + there[:, None]).flatten()
    shape = (*here.shape, there.shape[1])
    down, right = _offset_tables(rules, here.device)
    return down.index_select(0, pair).view(shape), right.index_select(0, pair).view(shape)


@cache
def _offset_tables(rules: GameRules, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns between two cells, at here * (C+1) + there; "nowhere" is a whole board away."""

    def short(gap: Tensor, size: int) -> Tensor:
        # Exactly half way round, both ways are equally short, and the gap keeps its sign.
        return torch.where(gap.abs() <= size // 2, gap, gap - gap.sign() * size)

    row, column = torch.arange(rules.cells) // rules.width, torch.arange(rules.cells) % rules.width
    down = torch.full((rules.cells + 1, rules.cells + 1), float(rules.height))
    right = torch.full((rules.cells + 1, rules.cells + 1), float(rules.width))
    down[:-1, :-1] = short(row - row[:, None], rules.height).float()
    right[:-1, :-1] = short(column - column[:, None], rules.width).float()
    return down.flatten().to(device), right.flatten().to(device)


def cell_contents(game: SnakesGame, cells: Tensor) -> Tensor:
    """What lies on the cells (E, ...), as the bits of the grid."""
    return game.grid.gather(1, cells.flatten(1)).view_as(cells)


def body_parts(game: SnakesGame, cells: Tensor, content: Tensor) -> tuple[Tensor, Tensor]:
    """For the snake parts on the cells (E, N) with this content (E, N): distance to the head, and time to stay.

    The distance counts cells along the body. The time is the number of moves for which the part remains there, unless
    its snake grows; 0 if there is no snake.
    """
    code = game.codes(content).long()
    # Gathered by player: scattering heads and lengths to cells would cost a sort on a GPU in deterministic mode.
    head = F.pad(game.head_cells, (FIRST_SNAKE, 0), value=game.rules.cells).gather(1, code)
    length = F.pad(game.length[:-1].T, (FIRST_SNAKE, 0)).gather(1, code)
    behind = game.time.to(torch.uint8)[:, None] - game.trail[:, :, 1].gather(1, cells)
    # The head itself has not left its cell yet, so its entry in the trail is old.
    behind = behind * (cells != head)
    return behind, (length - behind) * (content > BEAN_BIT)


def steps_to_bean(game: SnakesGame, cells: Tensor, most: int) -> Tensor:
    """Moves from each cell (E, N) to the nearest bean, avoiding all snakes; at most `most`."""
    rules = game.rules
    things = game.grid[:, : rules.cells].view(game.count, rules.height, rules.width)
    # Byte arithmetic: bit 0 is a bean, any other bit a snake. Comparisons take ten times as long here.
    reached, blocked = _rows_as_bits(things & BEAN_BIT), _rows_as_bits(things.clamp(max=2) >> 1)
    is_open = ((1 << rules.width) - 1) & ~blocked
    row, column, last = cells // rules.width, cells % rules.width, rules.width - 1
    # Flood fill from all beans at once, one move per iteration. A cell reached in iteration k (from 0) is counted down
    # in that iteration and all later ones, which leaves k.
    steps = torch.full_like(cells, most)
    for _ in range(most):
        steps -= (reached.gather(1, row) >> column) & 1
        # One cell to either side, and across the edge; is_open removes bits shifted beyond the row.
        sideways = (reached << 1) | (reached >> 1) | (reached << last) | (reached >> last)
        reached = (reached | sideways | reached.roll(1, 1) | reached.roll(-1, 1)) & is_open
    return steps


def _rows_as_bits(cells: Tensor) -> Tensor:
    """Each row of zeros and ones (E, H, W) as the bits of an integer: (E, H) int64."""
    # A product of matrices is fast, and float64 is exact for rows of up to 53 cells; the widest board has 60 by 4.
    return (cells.double() @ _powers(cells.shape[2], cells.device)).long()


@cache
def _powers(count: int, device: torch.device) -> Tensor:
    return 2.0 ** torch.arange(count, dtype=torch.float64, device=device)
