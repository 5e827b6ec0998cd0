"""How fast larger worlds would be: measured compute of one rank's share, and its exchanges over a link.

The seconds of a rank for one step of a world of N ranks are the sum of

* compute: measured, by one rank that does the share of rank 0 of N (`RehearsedWorld`). What does not shrink with the
  share (bookkeeping, kernels at their smallest) is in it, and so are uneven lanes: the largest share counts;
* transfer: bytes x 2 (N - 1) / N / bandwidth for a sum over ranks (a ring sends every byte that often), bytes x
  (N - 1) / N / bandwidth where all lanes are gathered;
* latency: as many exchanges as were counted, each as long as the smallest between two ranks, times the hops of N.

Nothing overlaps, all ranks are equally fast, and the link is the same between any two: DDP hides a part of the
transfer behind its backward pass, so a real world can be faster; a slower rank or link makes it slower.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Above this efficiency there is no loss worth a name: more ranks still help.
_GOOD = 0.9
# Below it, ranks are better used for something else.
WORTHWHILE = 0.5


@dataclass(frozen=True)
class Exchanges:
    """What a rank exchanges for one step of the world; see `Tally`."""

    sums: float = 0.0
    sum_bytes: float = 0.0
    gathers: float = 0.0
    gather_bytes: float = 0.0
    flags: float = 0.0

    @classmethod
    def per_step(cls, tallies: Iterable[Mapping[str, float]], steps: float) -> "Exchanges":
        """The mean over some measurements that took so many steps together."""
        counted = list(tallies)
        return cls(**{name: sum(tally[name] for tally in counted) / steps for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Link:
    """What joins the ranks."""

    bandwidth: float
    """Bytes a second that a rank sends while all of them exchange."""
    latency: float
    """Seconds of the smallest exchange of tensors between two ranks."""
    flag_latency: float
    """Seconds of a decision of two ranks."""
    tree: bool
    """Whether small tensors travel along a tree, as NCCL's do; else, and in any case for flags, around a ring."""
    source: str = ""
    """Where the numbers come from, in words."""

    @classmethod
    def measured(cls, found: Mapping[str, Any], size: int, ranks: int, source: str) -> "Link":
        """What sums of `size` bytes over so many ranks say; `found`: see `exchange_seconds`."""
        tree = found["backend"] == "nccl"
        # Where a larger sum takes no longer, the clock is too coarse to tell how much it can carry.
        moving = max(found["large"] - found["small"], 1e-3 * found["large"])
        return cls(
            bandwidth=size * _both_ways(ranks) / moving,
            latency=found["small"] / hops(ranks, tree),
            flag_latency=found["flag"] / hops(ranks, tree=False),
            tree=tree,
            source=source,
        )

    def transfer(self, exchanges: Exchanges, ranks: int) -> float:
        """Seconds in which bytes are on their way."""
        moved = exchanges.sum_bytes * _both_ways(ranks) + exchanges.gather_bytes * (ranks - 1) / ranks
        return moved / self.bandwidth

    def waiting(self, exchanges: Exchanges, ranks: int) -> float:
        """Seconds that the exchanges take however little they move."""
        tensors = (exchanges.sums + exchanges.gathers) * self.latency * hops(ranks, self.tree)
        return tensors + exchanges.flags * self.flag_latency * hops(ranks, tree=False)


def hops(ranks: int, tree: bool) -> float:
    """How many times as long the smallest exchange takes as between two ranks."""
    return math.ceil(math.log2(ranks)) if tree else ranks - 1


def _both_ways(ranks: int) -> float:
    """How often a ring sends each byte of a sum: once around to add it up, once around to hand it out."""
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Share:
    """What one rank of a world does, as one rank alone rehearsed it."""

    ranks: int
    seconds: float
    """Seconds of compute for one step of the world."""
    exchanges: Exchanges = field(default_factory=Exchanges)


@dataclass(frozen=True)
class Forecast:
    """A world that was not measured; seconds are a rank's, for one step of the world."""

    ranks: int
    lanes: int
    one: float
    """Seconds of one rank alone, measured."""
    compute: float
    transfer: float
    waiting: float

    @property
    def speed(self) -> float:
        """Steps a second over all ranks."""
        return 1 / (self.compute + self.transfer + self.waiting)

    @property
    def efficiency(self) -> float:
        """The speed as a part of that many times one rank's."""
        return self.speed * self.one / self.ranks

    def share(self, seconds: float) -> float:
        """A part's share of a rank's time."""
        return seconds * self.speed

    @property
    def losses(self) -> dict[str, float]:
        """Seconds more than an equal part of one rank's, by cause."""
        equal = self.one / self.ranks
        largest = self.one * math.ceil(self.lanes / self.ranks) / self.lanes
        return {
            "uneven lanes": largest - equal,
            "small shares": self.compute - largest,
            "exchange: bytes": self.transfer,
            "exchange: latency": self.waiting,
        }

    @property
    def limit(self) -> str:
        """What keeps more ranks from helping; `compute` where nothing does yet."""
        if self.efficiency >= _GOOD:
            return "compute"
        losses = self.losses
        return max(losses, key=lambda cause: losses[cause])


def forecast(one: float, share: Share, link: Link, lanes: int) -> Forecast:
    """What to expect of a world, given the seconds a step of one rank alone."""
    transfer, waiting = link.transfer(share.exchanges, share.ranks), link.waiting(share.exchanges, share.ranks)
    return Forecast(share.ranks, lanes, one, share.seconds, transfer, waiting)


@dataclass(frozen=True)
class Check:
    """A world that was measured beside what the model says of it, which knows one rank and the link alone."""

    ranks: int
    measured: float
    """Steps a second over all ranks."""
    predicted: float
    crowding: float
    """Ranks for each of the devices that they share; 1 = each has its own."""

    @property
    def error(self) -> float:
        """How much faster the model is than the world that was measured."""
        return self.predicted / self.measured - 1


def check(measured: float, expected: Forecast, crowding: float) -> Check:
    """Compare; ranks that share a device take turns at it, so that each waits for the compute of the others."""
    shared = Forecast(
        expected.ranks,
        expected.lanes,
        expected.one,
        expected.compute * crowding,
        expected.transfer,
        expected.waiting,
    )
    return Check(expected.ranks, measured, shared.speed, crowding)


@dataclass(frozen=True)
class Prediction:
    """All that is predicted of one workload."""

    link: Link
    forecasts: list[Forecast]
    """Worlds that were not measured, smallest first."""
    checks: list[Check]
    """Worlds that were."""
    impossible: dict[int, str]
    """Worlds that the run as it is cannot have, and what it would take."""
    exchanges: Exchanges | None
    """Of an update, in the largest world that was rehearsed; None where none could be."""
    steps: float
    """Steps of an update there."""


def sizes_up_to(largest: int, measured: int) -> list[int]:
    """The worlds to predict: doubled from the largest that is measured, and the last one."""
    doubled = [size for power in range(1, largest.bit_length()) if measured < (size := 2**power) < largest]
    return [*doubled, largest]
