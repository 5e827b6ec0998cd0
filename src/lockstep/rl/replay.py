"""Replay: what lanes experienced, kept to be learned from many times. L: lanes, R: rows, W: environments of a lane.

Each lane has a memory of its own: a ring of R rows, one row for each step that its W environments made together. Where
writing stands is the same in every lane (rows written so far), so there is nothing to agree upon; a draw is a pure
function of (seed, lane, update), so there is nothing to save but the rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.errors import UserError


@dataclass(frozen=True)
class Column:
    """What is kept of one environment's step under one name."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


def bytes_of_row(columns: Mapping[str, Column]) -> int:
    """What one environment's step takes."""
    return sum(math.prod(column.shape) * column.dtype.itemsize for column in columns.values())


class Replay:
    """The memories of a cohort's lanes, written in place and drawn from by counter."""

    def __init__(
        self,
        lanes: range,
        rows: int,
        width: int,
        columns: Mapping[str, Column],
        seed: int,
        device: torch.device,
    ) -> None:
        self.rows, self.width = rows, width
        self._seed = seed
        self._lane = torch.arange(lanes.start, lanes.stop, device=device)
        self._base = (self._lane - lanes.start)[:, None] * (rows * width)
        self._columns = {
            name: torch.zeros((len(lanes), rows, width, *column.shape), dtype=column.dtype, device=device)
            for name, column in columns.items()
        }

    def write(self, row: Tensor, **values: Tensor) -> None:
        """Store one step, (L x W, ...) per named column, in the row that an index of one element points at."""
        for name, value in values.items():
            column = self._columns[name]
            parts = value.to(column.dtype).view(len(self._lane), 1, self.width, *column.shape[3:])
            column.index_copy_(1, row, parts)

    def filled(self, written: int) -> int:
        """Rows that hold something after so many were written."""
        return min(written, self.rows)

    def lots(self, update: Tensor, count: int) -> Tensor:
        """(U, L, count) random words for updates (U,): what is drawn with, the same whichever lanes are together."""
        numbers = torch.arange(count, device=self._lane.device)
        return random.words(self._seed, "replay", self._lane[:, None], update[:, None, None], numbers)[0]

    def draw(self, lots: Tensor, written: int, successors: int) -> Tensor:
        """(..., L, count) places of past steps, each with so many later rows behind it, after `written` rows."""
        filled = self.filled(written)
        choices = (filled - successors) * self.width
        assert 0 < choices < 1 << 31, "draw only where there are rows enough, and fewer than 2^31 steps"
        # The upper half of a product: a whole number below `choices`, the same on every device.
        choice = (lots * choices) >> 32
        row = (written - filled + choice // self.width) % self.rows
        return self._base + row * self.width + choice % self.width

    def read(self, name: str, place: Tensor, later: int = 0) -> Tensor:
        """One column at some places (...), or so many steps later in the same environments: (..., *its own shape)."""
        ring = self.rows * self.width
        if later:
            start = place // ring * ring
            place = start + (place - start + later * self.width) % ring
        column = self._columns[name]
        return column.flatten(0, 2).index_select(0, place.flatten()).view(*place.shape, *column.shape[3:])

    def state(self, written: int) -> dict[str, Tensor]:
        """The rows that hold something, each tensor with L first, so that lanes can be cut out of it."""
        return {name: column[:, : self.filled(written)] for name, column in self._columns.items()}

    def load(self, state: Mapping[str, Tensor], written: int) -> None:
        """Take up a state from `state` after so many rows; a ring that has gone round cannot be made longer."""
        held = next(iter(state[name] for name in self._columns)).shape[1]
        if held != self.filled(written):
            raise UserError(
                f"buffer_size: the checkpoint remembers {held:,} steps of each environment, this run would have room "
                f"for {self.rows:,}; go on with the buffer_size and the steps that the run had"
            )
        for name, column in self._columns.items():
            kept, room = state[name], column[:, :held]
            if kept.shape != room.shape:
                raise UserError(
                    f"memory: {name} has shape {tuple(kept.shape)} in the checkpoint, and {tuple(room.shape)} in this "
                    "run; go on with what the run remembered, and of as many environments"
                )
            room.copy_(kept)
