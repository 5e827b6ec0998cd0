"""Lanes: the units of data-parallel work that keep their identity whatever the number of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Sync = Literal["fast", "exact"]


def lanes_of_rank(total: int, rank: int, size: int) -> range:
    """The contiguous lanes of one rank, as even as possible, larger shares first (8 lanes on 3 ranks: 3, 3, 2)."""
    # The first `extra` ranks get one lane more. Contiguous, so that gathering in rank order is gathering in lane order.
    share, extra = divmod(total, size)
    start = rank * share + min(rank, extra)
    return range(start, start + share + (rank < extra))


@dataclass(frozen=True)
class Lanes:
    """Which lanes a rank owns, and which of them are computed together."""

    total: int
    """The number of lanes of the run, over all ranks."""
    mine: range
    """The lanes of this rank."""
    cohorts: tuple[range, ...]
    """Groups of this rank's lanes whose sums are added up as one: all of them in `fast`, each lane in `exact`."""
    counts: tuple[int, ...]
    """The number of lanes of each rank, in rank order."""

    @classmethod
    def split(cls, total: int, rank: int, size: int, sync: Sync) -> "Lanes":
        """The lanes of one rank in a world of `size`."""
        mine = lanes_of_rank(total, rank, size)
        # In `exact` sums are those of one lane, so their bits do not depend on who computes it.
        cohorts = (mine,) if sync == "fast" else tuple(range(lane, lane + 1) for lane in mine)
        return cls(total, mine, cohorts, tuple(len(lanes_of_rank(total, r, size)) for r in range(size)))

    def share_out(self, items: int) -> Sequence[range]:
        """Items 0..items-1 split contiguously and evenly over all lanes; returns the ranges of this rank's lanes."""
        # Split over lanes, not ranks: which lane gets an item does not depend on the world size.
        return [lanes_of_rank(items, lane, self.total) for lane in self.mine]
