"""Replay buffers, one per lane. L: lanes, R: rows, W: environments of a lane.

A lane's buffer is a ring of R rows; a row holds one step of each of its W environments. All lanes have written the same
number of rows, so ranks need not agree on a position. A draw is a pure function of (seed, lane, update), so the rows
are the only state to save.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.compute.lane_axis import rows_at
from lockstep.errors import UserError


@dataclass(frozen=True)
class Column:
    """Shape and type of one stored quantity, for one step of one environment."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


def bytes_of_row(columns: Mapping[str, Column]) -> int:
    """Bytes that one step of one environment takes."""
    return sum(math.prod(column.shape) * column.dtype.itemsize for column in columns.values())


class Replay:
    """The replay buffers of a cohort's lanes, written in place and sampled with counter-based random numbers."""

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
        # (L, 1) where each lane's buffer starts in the flattened columns, so that one index reads from all lanes.
        self._base = (self._lane - lanes.start)[:, None] * (rows * width)
        self._columns = {
            name: torch.zeros((len(lanes), rows, width, *column.shape), dtype=column.dtype, device=device)
            for name, column in columns.items()
        }

    def write(self, row: Tensor, **values: Tensor) -> None:
        """Store one step, (L x W, ...) for each named column, in a row: a tensor (1,), as recorded graphs need."""
        for name, value in values.items():
            column = self._columns[name]
            parts = value.to(column.dtype).view(len(self._lane), 1, self.width, *column.shape[3:])
            column.index_copy_(1, row, parts)

    def filled(self, written: int) -> int:
        """Rows in use after `written` rows."""
        return min(written, self.rows)

    def random_words(self, update: Tensor, count: int) -> Tensor:
        """(U, L, count) random words for updates (U,); a lane's words do not depend on the lanes beside it."""
        numbers = torch.arange(count, device=self._lane.device)
        return random.random_words(self._seed, "replay", self._lane[:, None], update[:, None, None], numbers)[0]

    def sample_positions(self, words: Tensor, written: int, successors: int) -> Tensor:
        """Choose steps with at least `successors` later rows, after `written` rows: flat positions (..., L, count)."""
        filled = self.filled(written)
        choices = (filled - successors) * self.width
        assert 0 < choices < 1 << 31, "sampling needs more rows than successors, and fewer than 2^31 steps"
        # Multiply and shift: an integer below `choices` from a 32-bit word, in integers and so equal on every device.
        # The bound above keeps the product within 63 bits.
        choice = (words * choices) >> 32
        # Counted from the oldest row, so a choice never runs past the newest one into overwritten rows.
        row = (written - filled + choice // self.width) % self.rows
        return self._base + row * self.width + choice % self.width

    def read(self, name: str, place: Tensor, later: int = 0) -> Tensor:
        """A column at positions (...), or `later` steps later in the same environments: (..., *the column's shape)."""
        ring = self.rows * self.width
        if later:
            # Wrap around within the lane's own ring.
            start = place // ring * ring
            place = start + (place - start + later * self.width) % ring
        column = self._columns[name]
        return rows_at(column.flatten(0, 2), place.flatten()).view(*place.shape, *column.shape[3:])

    def state(self, written: int) -> dict[str, Tensor]:
        """The rows in use, each tensor with L first, so that it can be split into lanes."""
        return {name: column[:, : self.filled(written)] for name, column in self._columns.items()}

    def load(self, state: Mapping[str, Tensor], written: int) -> None:
        """Restore what `state` returned after `written` rows. UserError if the buffer has another size."""
        # Row numbers are taken modulo the size, so a ring that has wrapped around cannot be resumed at another size.
        held = next(iter(state[name] for name in self._columns)).shape[1]
        if held != self.filled(written):
            raise UserError(
                f"buffer_size: the checkpoint stores {held:,} steps of each environment, this run has room for "
                f"{self.rows:,}; resume with the buffer_size and steps that the run was started with"
            )
        for name, column in self._columns.items():
            kept, room = state[name], column[:, :held]
            if kept.shape != room.shape:
                raise UserError(
                    f"replay buffer: {name} has shape {tuple(kept.shape)} in the checkpoint, and {tuple(room.shape)} "
                    "in this run; resume with the environments and storage settings that the run was started with"
                )
            room.copy_(kept)
