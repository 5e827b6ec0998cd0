"""Sets of cells as bits, one integer per row of a board: a fraction of the memory traffic of one byte per cell.

E: boards, H: rows, W: columns, C: cells, K: chunks of a row, N: chunks in all.
"""

from functools import cache

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.rules import GameRules

_CHUNK = 10
"""Bits per table lookup: the tables for 10 bits are small enough for a GPU's fastest cache."""


class RowBits:
    """Operations on rows (E, H) int64 of boards with the same rules: bit c of row r is the cell r * W + c."""

    def __init__(self, rules: GameRules, device: torch.device) -> None:
        self._width, self._cells = rules.width, rules.cells
        self._row = torch.arange(rules.height, device=device)
        self._column_bit = 1 << torch.arange(rules.width, device=device)
        self._all = (1 << rules.width) - 1
        self._shift = torch.arange(0, rules.width, _CHUNK, device=device)
        self._chunk_start = (self._row[:, None] * rules.width + self._shift).flatten()
        self._population, self._select = _tables(device)

    def where_empty(self, grid: Tensor) -> Tensor:
        """(E, H) the empty cells of the grids (E, S)."""
        empty = grid[:, : self._cells].view(len(grid), -1, self._width) == 0
        return (empty * self._column_bit).sum(2)

    def without(self, rows: Tensor, cells: Tensor) -> Tensor:
        """The rows with those cells (E, n) cleared; cells must be distinct or "nowhere", because bits are summed."""
        bit = 1 << cells % self._width
        taken = ((cells // self._width)[:, :, None] == self._row) * bit[:, :, None]
        return rows & ~taken.sum(1)

    def sideways(self, rows: Tensor, steps: int) -> Tensor:
        """Each cell gets the bit of the cell `steps` to its right, across the edge of the torus."""
        # A rotation of W bits: what leaves at one end enters at the other.
        return (rows >> steps | rows << self._width - steps) & self._all

    def first_with_room(self, free: Tensor) -> Tensor:
        """(E,) the first free cell, in row order, connected to at least two other free cells; C if there is none."""
        above, below = free.roll(1, 1), free.roll(-1, 1)
        left, right = self.sideways(free, self._width - 1), self.sideways(free, 1)
        two_beside = above & below | left & right | (above | below) & (left | right)
        # A group of three connected cells always has a middle cell with two free neighbours. So a cell has room if it
        # is such a middle cell or lies beside one.
        middle = free & two_beside
        beside = self.sideways(middle, 1) | self.sideways(middle, self._width - 1)
        room = free & (middle | middle.roll(1, 1) | middle.roll(-1, 1) | beside)
        # Index of the lowest set bit: a power of two is exact in float32, and its exponent is the index.
        column = ((room & -room).to(torch.float32).view(torch.int32) >> 23) - 127
        return torch.where(room != 0, self._row * self._width + column, self._cells).amin(1)

    def chunks(self, rows: Tensor) -> Tensor:
        """(E, H * K) the rows split into chunks of _CHUNK bits, in the order of the cells."""
        return (rows[:, :, None] >> self._shift & (1 << _CHUNK) - 1).flatten(1)

    def counted(self, chunks: Tensor) -> Tensor:
        """(E, N) inclusive cumulative count of set bits."""
        return self._population.take(chunks).cumsum(1)

    def nth(self, chunks: Tensor, counted: Tensor, number: Tensor) -> Tensor:
        """(E, 1) the cell of the set bit with that number (E, 1), counted from 0; arbitrary if there are fewer.

        Chunks of a second set of rows may follow the first; its cells are numbered from C on.
        """
        # The chunk: the first whose cumulative count exceeds the number. Then the bit within it, by table.
        place = (counted <= number).sum(1, keepdim=True).clamp(max=chunks.shape[1] - 1)
        chunk = chunks.gather(1, place)
        rank = number - counted.gather(1, place) + self._population.take(chunk)
        # Clamped because a number that is too large must not read outside the table; the result is unused then.
        bit = self._select.take((chunk * _CHUNK + rank).clamp(min=0, max=len(self._select) - 1))
        per_board = len(self._chunk_start)
        return place // per_board * self._cells + self._chunk_start.take(place % per_board) + bit


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Number of set bits of each chunk; and, at chunk * _CHUNK + n, the position of its n-th set bit."""
    ones = [[bit for bit in range(_CHUNK) if chunk >> bit & 1] for chunk in range(1 << _CHUNK)]
    population = torch.tensor([len(found) for found in ones])
    select = torch.tensor([found + [0] * (_CHUNK - len(found)) for found in ones]).flatten()
    return population.to(device), select.to(device)
