"""Replay of sequences of consecutive steps of one episode. L: lanes, R: rows, W: environments of a lane.

The host appends rows and knows the position; sampling never synchronizes with the device and can be recorded. Every
step is stored with its age in its episode. A step of age n ends a sequence of n + 1 steps, so the age of the last step
tells whether a sequence crosses the end of an episode. Of several candidates the first that does not is taken.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.compute.host_transfer import HostTransfer
from lockstep.rl.replay import Column, Replay

_AGE = "age"
_BLOCKS = 2
"""Blocks of four random words for each sequence; each word gives a candidate."""


class SequenceReplay(Replay):
    """A replay buffer that samples whole sequences; new rows overwrite the oldest."""

    def __init__(
        self,
        lanes: range,
        rows: int,
        width: int,
        columns: Mapping[str, Column],
        seed: int,
        device: torch.device,
        length: int,
        context: int = 0,
    ) -> None:
        """`length`: steps of a sequence. `context`: rows before a sequence that `stacked` may read."""
        # Then a spare sequence is due for renewal, after half a ring, before its first row is overwritten.
        assert rows >= 2 * (length + context), "the buffer must hold at least two sequences"
        columns = {**columns, _AGE: Column((), torch.int32)}
        super().__init__(lanes, rows, width, columns, seed, device)
        self.length, self.device, self._first_lane, self._context = length, device, lanes.start, context
        images = [name for name, column in columns.items() if column.dtype == torch.uint8]
        shapes = {name: column.shape for name, column in columns.items()}
        self._transfer = HostTransfer(len(lanes) * width, shapes, device, images)
        self._age = torch.zeros((len(lanes), width), dtype=torch.int32)
        """On the host: length of each unfinished episode so far."""
        self._spare = torch.full((len(lanes), 2), -1)
        """On the host: start of one complete sequence of each lane, and the row it ends in; -1 = none yet."""
        # On the device, changed in place: a recorded graph reads them anew at every replay.
        self._filled = torch.zeros((len(lanes), 1, 1), dtype=torch.int64, device=device)
        self._oldest = torch.zeros_like(self._filled)
        self._last_resort = torch.zeros((len(lanes), 1), dtype=torch.int64, device=device)

    def append(self, number: int, ended: Tensor, **values: Tensor) -> None:
        """Store row `number`: (L x W, ...) host tensors. `ended` (L x W,): the step was an episode's last."""
        self._transfer.send(**values, **{_AGE: self._age})
        for name, column in self._columns.items():
            arrived = self._transfer.views[name]
            column[:, number % self.rows].copy_(arrived.view(len(self._lane), self.width, *column.shape[3:]))
        self._renew_spare(number)
        self._age = torch.where(ended.view_as(self._age), 0, self._age + 1)
        self.resume(number + 1)

    def _renew_spare(self, number: int) -> None:
        """Take a sequence that ends in row `number` as the spare of lanes whose spare is missing or half a ring old."""
        complete = self._age >= self.length - 1
        start = (number - self.length + 1) % self.rows * self.width + complete.to(torch.uint8).argmax(1)
        # Early, since the next complete sequence may take a while, and the ring will overwrite the old one.
        needed = (self._spare[:, 1] < 0) | (number - self._spare[:, 1] >= self.rows // 2)
        renewed = needed & complete.any(1)
        if bool(renewed.any()):
            found = torch.stack((start, torch.full_like(start, number)), 1)
            self._spare = torch.where(renewed[:, None], found, self._spare)
            self._last_resort.copy_(self._spare[:, :1])

    def keep(self, lane: int, start: int, **values: Tensor) -> None:
        """Store a whole episode, (T, ...) host tensors, in a lane's rows from `start` on.

        For a buffer that is filled once and never appended to: one environment per lane, one episode after another.
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
        """Set the position after `written` rows."""
        self._filled.fill_(self.filled(written))
        self._oldest.fill_(written - self.filled(written))

    def end_episodes(self) -> None:
        """Let the next row begin new episodes everywhere, so that no sequence reaches across."""
        self._age.zero_()

    def lanes_without_sequence(self) -> int:
        """How many of these lanes hold no complete sequence yet."""
        return int((self._spare[:, 0] < 0).sum())

    def draw_sequences(self, update: Tensor, count: int) -> Tensor:
        """Sample sequences for an update: flat positions of their steps, (length, L x count)."""
        candidates = candidate_words(self._seed, self._lane, update, count)
        # Multiply and shift: an integer below the number of starts, in integers and so equal on every device.
        starts = self._filled - self.length + 1 - self._context
        choice = (candidates * (starts * self.width)) >> 32
        row, environment = self._oldest + self._context + choice // self.width, choice % self.width
        last = (row + self.length - 1) % self.rows * self.width + environment
        whole = self._columns[_AGE].flatten(1).gather(1, last.flatten(1)).view_as(last) >= self.length - 1
        start = first_complete(whole, row % self.rows * self.width + environment, self._last_resort)
        later = torch.arange(self.length, device=start.device).view(-1, 1, 1) * self.width
        return (self._base + (start + later) % (self.rows * self.width)).flatten(1)

    def stacked(self, name: str, place: Tensor, count: int) -> Tensor:
        """A column at positions (...) and the `count` - 1 steps before each, the oldest first: (..., count, ...).

        Before the first step of an episode nothing was seen: there that step stands for those before it.
        """
        age = self.read(_AGE, place).unsqueeze(-1)
        back = torch.minimum(age, torch.arange(count - 1, -1, -1, device=place.device))
        ring = self.rows * self.width
        start = (place // ring * ring).unsqueeze(-1)
        return self.read(name, start + (place.unsqueeze(-1) - start - back * self.width) % ring)

    def state(self, written: int) -> dict[str, Tensor]:
        """The rows in use, and the host's record of unfinished episodes; each tensor with L first."""
        return {**super().state(written), "next_age": self._age, "spare": self._spare}

    def load(self, state: Mapping[str, Tensor], written: int) -> None:
        """Restore what `state` returned; call `resume` afterwards to set the position."""
        super().load(state, written)
        self._age, self._spare = state["next_age"].cpu().clone(), state["spare"].cpu().clone()
        self._last_resort.copy_(self._spare[:, :1])


def candidate_words(seed: int, lane: Tensor, update: Tensor, count: int) -> Tensor:
    """Random 32-bit words, one for each candidate of each sequence of an update: (L, count, candidates)."""
    number = torch.arange(count * _BLOCKS, device=lane.device)
    words = random.random_words(seed, "replay", lane[:, None], update, number)
    return torch.stack(words, -1).view(len(lane), count, 4 * _BLOCKS)


def first_complete(whole: Tensor, start: Tensor, spare: Tensor) -> Tensor:
    """The start (L, count) of the first candidate (L, count, candidates) that is whole, else the lane's spare one."""
    # Earlier candidates weigh more, so the maximum is the first complete one.
    preference = torch.arange(whole.shape[-1], 0, -1, device=whole.device)
    first = (whole * preference).argmax(-1, keepdim=True)
    # If no candidate is complete, the lane's spare sequence is used: nothing has to wait or be repeated.
    return torch.where(whole.any(-1), start.gather(-1, first).squeeze(-1), spare)
