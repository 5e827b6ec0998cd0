"""Replay of sequences: steps that follow each other in one episode. L: lanes, R: rows, W: environments of a lane.

Rows are appended by the host, which knows where it stands; drawing waits for nothing and can be recorded. Every step is
kept with its age in its episode: a step of age n ends a sequence of n + 1 steps, so that one number tells whether a
sequence reaches over the end of an episode. Of some candidates the first that does not is taken.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.compute.host_transfer import HostTransfer
from lockstep.rl.replay import Column, Replay

_AGE = "age"
_BLOCKS = 2
"""Each block of random words gives four candidates."""


class SequenceReplay(Replay):
    """A replay that knows which steps belong together; the oldest rows make room."""

    def __init__(
        self,
        lanes: range,
        rows: int,
        width: int,
        columns: Mapping[str, Column],
        seed: int,
        device: torch.device,
        length: int,
    ) -> None:
        """`length`: steps of a sequence."""
        assert rows >= 2 * length, "a memory holds two sequences at least"
        columns = {**columns, _AGE: Column((), torch.int32)}
        super().__init__(lanes, rows, width, columns, seed, device)
        self.length, self.device, self._first_lane = length, device, lanes.start
        self._transfer = HostTransfer(len(lanes) * width, {name: c.shape for name, c in columns.items()}, device)
        self._age = torch.zeros((len(lanes), width), dtype=torch.int32)
        """On the host: steps that each unfinished episode has so far."""
        self._spare = torch.full((len(lanes), 2), -1)
        """On the host: where a whole sequence of each lane begins, and the row that it ends in; -1 before that."""
        self._filled = torch.zeros((len(lanes), 1, 1), dtype=torch.int64, device=device)
        self._oldest = torch.zeros_like(self._filled)
        self._last_resort = torch.zeros((len(lanes), 1), dtype=torch.int64, device=device)

    def append(self, number: int, ended: Tensor, **values: Tensor) -> None:
        """Store the row of this number: (L x W, ...) host tensors; `ended` says where it was an episode's last step."""
        self._transfer.send(**values, **{_AGE: self._age})
        for name, column in self._columns.items():
            arrived = self._transfer.views[name]
            column[:, number % self.rows].copy_(arrived.view(len(self._lane), self.width, *column.shape[3:]))
        self._renew_spare(number)
        self._age = torch.where(ended.view_as(self._age), 0, self._age + 1)
        self.resume(number + 1)

    def _renew_spare(self, number: int) -> None:
        """Note a sequence that ends in the row of this number, in lanes that have none or one that will go soon."""
        complete = self._age >= self.length - 1
        start = (number - self.length + 1) % self.rows * self.width + complete.to(torch.uint8).argmax(1)
        wanted = (self._spare[:, 1] < 0) | (number - self._spare[:, 1] >= self.rows // 2)
        renewed = wanted & complete.any(1)
        if bool(renewed.any()):
            found = torch.stack((start, torch.full_like(start, number)), 1)
            self._spare = torch.where(renewed[:, None], found, self._spare)
            self._last_resort.copy_(self._spare[:, :1])

    def keep(self, lane: int, start: int, **values: Tensor) -> None:
        """Store a whole episode of one of these lanes, (T, ...) host tensors, in its rows from `start` on.

        For a memory that is filled once and never appended to, with one environment a lane, episode behind episode.
        """
        assert self.width == 1
        rows, number = slice(start, start + len(next(iter(values.values())))), lane - self._first_lane
        values[_AGE] = torch.arange(rows.stop - rows.start)
        for name, value in values.items():
            self._columns[name][number, rows, 0] = value.to(self.device, self._columns[name].dtype)
        self._filled[number] = rows.stop
        if self._spare[number, 0] < 0 and rows.stop - rows.start >= self.length:
            self._spare[number] = torch.tensor([start, start + self.length - 1])
            self._last_resort.copy_(self._spare[:, :1])

    def resume(self, written: int) -> None:
        """Go on after so many rows."""
        self._filled.fill_(self.filled(written))
        self._oldest.fill_(written - self.filled(written))

    def lanes_without_sequence(self) -> int:
        """How many of these lanes have had no episode as long as a sequence."""
        return int((self._spare[:, 0] < 0).sum())

    def draw_sequences(self, update: Tensor, count: int) -> Tensor:
        """The places of sequences step by step, (length, L x count), drawn by the number of an update."""
        number = torch.arange(count * _BLOCKS, device=update.device)
        words = random.words(self._seed, "replay", self._lane[:, None], update, number)
        lots = torch.stack(words, -1).view(len(self._lane), count, 4 * _BLOCKS)
        # The upper half of a product: a whole number below the count, the same on every device.
        choice = (lots * ((self._filled - self.length + 1) * self.width)) >> 32
        row, environment = self._oldest + choice // self.width, choice % self.width
        last = (row + self.length - 1) % self.rows * self.width + environment
        whole = self._columns[_AGE].flatten(1).gather(1, last.flatten(1)).view_as(last) >= self.length - 1
        rank = torch.arange(whole.shape[-1], 0, -1, device=whole.device)
        first = (whole * rank).argmax(-1, keepdim=True)
        start = (row % self.rows * self.width + environment).gather(-1, first).squeeze(-1)
        start = torch.where(whole.any(-1), start, self._last_resort)
        later = torch.arange(self.length, device=start.device).view(-1, 1, 1) * self.width
        return (self._base + (start + later) % (self.rows * self.width)).flatten(1)

    def state(self, written: int) -> dict[str, Tensor]:
        """The rows that hold something, and what is known of unfinished episodes; each tensor with L first."""
        return {**super().state(written), "next_age": self._age, "spare": self._spare}

    def load(self, state: Mapping[str, Tensor], written: int) -> None:
        """Take up a state from `state`; `resume` says how many rows had been written."""
        super().load(state, written)
        self._age, self._spare = state["next_age"].cpu().clone(), state["spare"].cpu().clone()
        self._last_resort.copy_(self._spare[:, :1])
