"""Recorded episodes that stay on the host: batches are read from mapped files while the device learns.

The same sequences as from a buffer that holds all episodes (`SequenceReplay`), so the same bits.
L: lanes, H: horizon, b: samples of a lane, B: samples of a cohort.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.recorded import RecordedEpisodes
from lockstep.algorithms.tdmpc2.model.networks import Spaces
from lockstep.rl.sequence_replay import candidate_words, first_complete

SLOTS = 3
"""Batches on the host at a time: one that is being read, one that waits, and one that the device may still copy."""
Sequences = dict[str, Tensor]
"""`observation` (H + 1, B, ...), `action`, `reward` and `terminated` (H, B, ...), `task` (B,)."""


class StreamedSequences:
    """Sequences of some lanes' episodes: lane i of n has the episodes i, i + n, i + 2n and so on."""

    def __init__(
        self,
        files: RecordedEpisodes,
        lanes: range,
        total: int,
        length: int,
        spaces: Spaces,
        seed: int,
        device: torch.device,
    ) -> None:
        """`total`: lanes of the whole run. `length`: steps of a sequence. `device`: where batches are copied to."""
        self.length, self.device = length, device
        self._files, self._spaces, self._seed = files, spaces, seed
        self._lane = torch.arange(lanes.start, lanes.stop)
        lengths = files.lengths()
        self._episodes = [_LaneEpisodes(lengths, range(lane, files.count, total), length) for lane in lanes]
        # One thread: it has as long as an update takes, and a second one would compete with the learner.
        self._reader = ThreadPoolExecutor(1, "episodes")
        self._ahead: tuple[int, Future[Sequences]] | None = None
        self._slots: list[Sequences] = []
        self._copied = [torch.cuda.Event() for _ in range(SLOTS)] if device.type == "cuda" else []

    def lanes_without_sequence(self) -> int:
        """How many of these lanes hold no complete sequence."""
        return sum(episodes.spare < 0 for episodes in self._episodes)

    def copy_to(self, batch: Sequences, update: int) -> None:
        """Copy the sequences of an update into tensors on the device, and start reading those of the next."""
        samples = len(batch["reward"][0]) // len(self._lane)
        if not self._slots:
            self._slots = [self._empty(batch) for _ in range(SLOTS)]
        if self._ahead is None or self._ahead[0] != update:
            # The first update, or one after a resume: there is nothing to have read ahead.
            self._ahead = update, self._reader.submit(self._read, update, samples)
        found = self._ahead[1].result()
        for name, values in found.items():
            batch[name].copy_(values, non_blocking=True)
        if self._copied:
            self._copied[update % SLOTS].record()
        self._ahead = update + 1, self._reader.submit(self._read, update + 1, samples)

    def _empty(self, batch: Sequences) -> Sequences:
        # Pinned: only page-locked memory can be copied without blocking the host.
        pinned = self.device.type == "cuda"
        return {name: torch.zeros(t.shape, dtype=t.dtype, pin_memory=pinned) for name, t in batch.items()}

    def _read(self, update: int, samples: int) -> Sequences:
        """Read the sequences of an update into a slot; in the thread."""
        slot = self._slots[update % SLOTS]
        if self._copied:
            # The device may still copy what was read into this slot three updates ago.
            self._copied[update % SLOTS].synchronize()
        starts = self._draw(update, samples)
        place = torch.cat([lane.places(rows) for lane, rows in zip(self._episodes, starts, strict=True)], 1)
        self._files.read(place[0], place[1], slot)
        return slot

    def _draw(self, update: int, count: int) -> Tensor:
        """First rows of sequences, (L, count): as `SequenceReplay.draw_sequences`, without a ring."""
        candidates = candidate_words(self._seed, self._lane, torch.tensor(update), count)
        filled = torch.tensor([lane.rows for lane in self._episodes]).view(-1, 1, 1)
        start = (candidates * (filled - self.length + 1)) >> 32
        ages = [lane.ages(rows + self.length - 1) for lane, rows in zip(self._episodes, start, strict=True)]
        spare = torch.tensor([lane.spare for lane in self._episodes])[:, None]
        return first_complete(torch.stack(ages) >= self.length - 1, start, spare)


class _LaneEpisodes:
    """The episodes of one lane, one after another: row n of the lane is a step of one of them."""

    def __init__(self, lengths: Sequence[int], numbers: range, length: int) -> None:
        """`lengths`: steps of all episodes. `numbers`: those of this lane. `length`: steps of a sequence."""
        self._numbers = torch.tensor(numbers)
        *starts, self.rows = accumulate((lengths[number] for number in numbers), initial=0)
        self._starts = torch.tensor(starts, dtype=torch.int64)
        whole = (start for start, number in zip(starts, numbers, strict=True) if lengths[number] >= length)
        self.spare = next(whole, -1)
        """First row of the first episode that has a whole sequence; -1 = there is none."""

    def ages(self, rows: Tensor) -> Tensor:
        """How many steps of the same episode come before rows (...)."""
        return rows - self._starts[self._episode(rows)]

    def places(self, rows: Tensor) -> Tensor:
        """The numbers of the episodes that rows (b,) belong to, and their steps in them: (2, b)."""
        episode = self._episode(rows)
        return torch.stack((self._numbers[episode], rows - self._starts[episode]))

    def _episode(self, rows: Tensor) -> Tensor:
        return torch.searchsorted(self._starts, rows.contiguous(), right=True) - 1


def bytes_held(batch: int, horizon: int, observation: int, action: int) -> int:
    """Bytes of all slots, for batches of so many samples over all ranks."""
    numbers = (horizon + 1) * observation + horizon * (action + 2)
    return SLOTS * batch * (4 * numbers + 8)
