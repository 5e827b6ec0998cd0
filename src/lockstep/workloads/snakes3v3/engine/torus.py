"""The board's geometry as lookup tables. C: cells; cell C is "nowhere", a dummy target for masked reads and writes.

Tables make every step a few gathers without branches, the same for numpy, torch and Triton.
"""

from functools import cache

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.rules import DOWN, LEFT, RIGHT, UP, GameRules

SEARCH_ORDER = (RIGHT, DOWN, UP, LEFT)
"""The order in which the original's search for a respawn place visits the neighbours of a cell."""
NO_ROOM = 18
"""The shape for "no three connected cells"; 0 to 17 are the ways in which the search can find three, see `shapes`."""

# A place is the start and two more cells: two of its neighbours (a pair), or one neighbour and a cell beyond (a chain).
_PAIRS = [(first, second) for second in range(4) for first in range(second)]
_CHAINS = [(first, beyond) for first in range(4) for beyond in range(3)]


@cache
def neighbours(rules: GameRules, device: torch.device) -> Tensor:
    """(C, 4) int64: the cell above, below, to the left and to the right of each cell."""
    rows, columns = _rows(rules), _columns(rules)
    return _cells(
        rules,
        torch.stack((rows - 1, rows + 1, rows, rows), dim=1),
        torch.stack((columns, columns, columns - 1, columns + 1), dim=1),
    ).to(device)


@cache
def around(rules: GameRules, device: torch.device) -> Tensor:
    """(C+1, 16) int64: the neighbours of each cell in search order, then the three further neighbours of each of them.

    The cells around "nowhere" (C) are all the cell C + 1, a second dummy.
    """
    beside = neighbours(rules, torch.device("cpu"))
    nearest = [beside[:, direction] for direction in SEARCH_ORDER]
    further = [
        beside[cell, onward]
        for cell, direction in zip(nearest, SEARCH_ORDER, strict=True)
        for onward in SEARCH_ORDER
        if onward != direction ^ 1
    ]
    nowhere = torch.full((1, 16), rules.cells + 1)
    return torch.cat((torch.stack(nearest + further, dim=1), nowhere)).to(device)


@cache
def shapes(device: torch.device) -> Tensor:
    """(2^16,) int64: the shape that the search finds, indexed by which of the 16 cells `around` its start are free.

    The search is breadth first, for two more cells: the first two free neighbours, or the only free neighbour and the
    first free cell beyond it.
    """
    pattern, shape = torch.arange(1 << 16), torch.full((1 << 16,), NO_ROOM)
    for number, (first, second) in enumerate(_PAIRS):
        # The search stops at its second hit, so cells after it may be free or not.
        looked_at = (2 << second) - 1
        shape[pattern & looked_at == 1 << first | 1 << second] = number
    for number, (first, beyond) in enumerate(_CHAINS, start=len(_PAIRS)):
        place = 4 + 3 * first + beyond
        # All four neighbours, and the cells beyond `first` up to the hit.
        looked_at = 0b1111 | (2 << place) - (1 << 4 + 3 * first)
        shape[pattern & looked_at == 1 << first | 1 << place] = number
    return shape.to(device)


@cache
def respawn_bodies(rules: GameRules, device: torch.device) -> Tensor:
    """((C+1)*19, 4) int64: at start*19+shape the cells of the snake, head first, and its direction.

    If there is no room, or the start is "nowhere", all three cells are the start.
    """
    reach = around(rules, torch.device("cpu"))
    start = torch.arange(rules.cells + 1)
    second_third = [*_PAIRS, *((first, 4 + 3 * first + beyond) for first, beyond in _CHAINS)]
    bodies = [_ordered(rules, torch.stack((start, reach[:, a], reach[:, b]), dim=1)) for a, b in second_third]
    bodies.append(torch.stack((start, start, start, torch.full_like(start, UP)), dim=1))
    table = torch.stack(bodies, dim=1)
    table[rules.cells] = table[rules.cells, NO_ROOM]
    return table.flatten(0, 1).to(device)


@cache
def straights(rules: GameRules, device: torch.device) -> Tensor:
    """(2C*2, 4) int64: every straight snake of three, head first, and its direction; 2*i and 2*i+1 are opposite.

    The first C pairs lie on each cell and the two to its right, the others on each cell and the two below it.
    """
    rows, columns = _rows(rules), _columns(rules)
    across = torch.stack([_cells(rules, rows, columns + i) for i in range(3)], dim=1)
    down = torch.stack([_cells(rules, rows + i, columns) for i in range(3)], dim=1)
    lines = torch.cat((across, down))
    onward = torch.tensor([RIGHT, DOWN]).repeat_interleave(rules.cells)[:, None]
    forth, back = torch.cat((lines.flip(1), onward), dim=1), torch.cat((lines, onward ^ 1), dim=1)
    return torch.stack((forth, back), dim=1).flatten(0, 1).to(device)


def _ordered(rules: GameRules, body: Tensor) -> Tensor:
    """The body (N, 3) as a snake, head first, and its direction (N, 4)."""
    row, column = body // rules.width, body % rules.width
    # If the other two cells are round a corner from each other, the first is the middle of an L, and the original swaps
    # it with the second. In a straight line the middle stays the head, and cells two and three do not touch.
    corner = (row[:, 1] != row[:, 2]) & (column[:, 1] != column[:, 2])
    body = torch.where(corner[:, None], body[:, [1, 0, 2]], body)
    row, column = body // rules.width, body % rules.width
    # The original ignores the torus here: if head and second cell touch across an edge, the snake faces its own body.
    sideways = torch.where(column[:, 0] > column[:, 1], RIGHT, LEFT)
    upright = torch.where(row[:, 0] > row[:, 1], DOWN, UP)
    direction = torch.where(row[:, 0] == row[:, 1], sideways, upright)
    return torch.cat((body, direction[:, None]), dim=1)


def _rows(rules: GameRules) -> Tensor:
    return torch.arange(rules.cells) // rules.width


def _columns(rules: GameRules) -> Tensor:
    return torch.arange(rules.cells) % rules.width


def _cells(rules: GameRules, rows: Tensor, columns: Tensor) -> Tensor:
    return rows % rules.height * rules.width + columns % rules.width
