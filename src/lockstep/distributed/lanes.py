"""Lanes: the units of data-parallel work that keep their identity whatever the number of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Sync = Literal["fast", "exact"]


def lanes_of_rank(total: int, rank: int, size: int) -> range:
    """The contiguous lanes of one rank, as evenly as possible, the larger shares first (8 on 3: 3, 3, 2)."""
    share, extra = divmod(total, size)
    start = rank * share + min(rank, extra)
    return range(start, start + share + (rank < extra))


@dataclass(frozen=True)
class Lanes:
    """Which lanes a rank owns, and which of them are computed together."""

    total: int
    """Lanes of the run, over all ranks."""
    mine: range
    """The lanes of this rank."""
    cohorts: tuple[range, ...]
    """The lanes computed as one batch: all of a rank's in `fast`, one by one in `exact`."""
    counts: tuple[int, ...]
    """Lanes of every rank."""

    @classmethod
    def split(cls, total: int, rank: int, size: int, sync: Sync) -> "Lanes":
        """The lanes of one rank in a world of `size`."""
        mine = lanes_of_rank(total, rank, size)
        cohorts = (mine,) if sync == "fast" else tuple(range(lane, lane + 1) for lane in mine)
        return cls(total, mine, cohorts, tuple(len(lanes_of_rank(total, r, size)) for r in range(size)))

    def share_out(self, items: int) -> Sequence[range]:
        """Item numbers 0..items-1 dealt to this rank's lanes, contiguous and as evenly as possible over all lanes."""
        return [lanes_of_rank(items, lane, self.total) for lane in self.mine]
