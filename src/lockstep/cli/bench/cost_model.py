"""A cost model for larger worlds: the measured compute of one rank's share, plus its exchanges over a link.

A rank's seconds for one step of a world of N ranks are the sum of

* compute: measured, by one rank that does the share of rank 0 of N (`RehearsedWorld`). This includes costs that do not
  shrink with the share (bookkeeping, kernel launches) and uneven lanes, since rank 0 has the largest share;
* transfer: bytes x 2 (N - 1) / N / bandwidth for an all-reduce (a ring sends every byte that often), bytes x
  (N - 1) / N / bandwidth for an all-gather of the lanes;
* latency: the number of exchanges, times the latency of the smallest exchange between two ranks, times the hops of N.

The model assumes no overlap, equally fast ranks, and the same link between any two. DDP hides part of the transfer
behind its backward pass, so a real world can be faster; a slower rank or link makes it slower.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# At or above this efficiency the forecast names no loss: more ranks still help.
_GOOD = 0.9
# Below this efficiency, ranks are better used for something else.
WORTHWHILE = 0.5


@dataclass(frozen=True)
class Exchanges:
    """What a rank exchanges for one step of the world, as `Tally` counts it."""

    sums: float = 0.0
    sum_bytes: float = 0.0
    gathers: float = 0.0
    gather_bytes: float = 0.0
    flags: float = 0.0

    @classmethod
    def per_step(cls, tallies: Iterable[Mapping[str, float]], steps: float) -> "Exchanges":
        """The mean per step over measurements that took `steps` steps in total."""
        counted = list(tallies)
        return cls(**{name: sum(tally[name] for tally in counted) / steps for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Link:
    """The connection between the ranks."""

    bandwidth: float
    """Bytes a second that a rank sends while all of them exchange."""
    latency: float
    """Seconds of the smallest exchange of tensors between two ranks."""
    flag_latency: float
    """Seconds for two ranks to agree on a flag."""
    tree: bool
    """Whether small tensors travel along a tree, as NCCL's do; otherwise around a ring, as flags always do."""
    source: str = ""
    """Where the numbers come from, as text for the report."""

    @classmethod
    def measured(cls, found: Mapping[str, Any], size: int, ranks: int, source: str) -> "Link":
        """The link as measured by all-reduces of `size` bytes; `found`: the result of `exchange_seconds`."""
        tree = found["backend"] == "nccl"
        # If the larger all-reduce takes no longer than the smallest, the clock is too coarse to measure the bandwidth;
        # the floor keeps it finite.
        moving = max(found["large"] - found["small"], 1e-3 * found["large"])
        return cls(
            bandwidth=size * _both_ways(ranks) / moving,
            latency=found["small"] / hops(ranks, tree),
            flag_latency=found["flag"] / hops(ranks, tree=False),
            tree=tree,
            source=source,
        )

    def transfer(self, exchanges: Exchanges, ranks: int) -> float:
        """Seconds to move the bytes of the exchanges."""
        moved = exchanges.sum_bytes * _both_ways(ranks) + exchanges.gather_bytes * (ranks - 1) / ranks
        return moved / self.bandwidth

    def waiting(self, exchanges: Exchanges, ranks: int) -> float:
        """Seconds of latency: what the exchanges take however small they are."""
        tensors = (exchanges.sums + exchanges.gathers) * self.latency * hops(ranks, self.tree)
        return tensors + exchanges.flags * self.flag_latency * hops(ranks, tree=False)


def hops(ranks: int, tree: bool) -> float:
    """The latency of N ranks as a multiple of that of two: the depth of a tree, or the length of a ring."""
    return math.ceil(math.log2(ranks)) if tree else ranks - 1


def _both_ways(ranks: int) -> float:
    """How often a ring all-reduce sends each byte: reduce-scatter and all-gather take (N - 1) / N each."""
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Share:
    """The work of one rank of a world, as measured by a rehearsal on one rank."""

    ranks: int
    seconds: float
    """Seconds of compute for one step of the world."""
    exchanges: Exchanges = field(default_factory=Exchanges)


@dataclass(frozen=True)
class Forecast:
    """The prediction for one world size; seconds are a rank's, for one step of the world."""

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
        """The speed as a fraction of `ranks` times the speed of one rank."""
        return self.speed * self.one / self.ranks

    def share(self, seconds: float) -> float:
        """`seconds` as a share of a rank's time."""
        return seconds * self.speed

    @property
    def losses(self) -> dict[str, float]:
        """Seconds lost compared with perfect scaling, by cause."""
        equal = self.one / self.ranks
        # All ranks wait for the one with the most lanes.
        largest = self.one * math.ceil(self.lanes / self.ranks) / self.lanes
        return {
            "uneven lanes": largest - equal,
            "small shares": self.compute - largest,
            "exchange: bytes": self.transfer,
            "exchange: latency": self.waiting,
        }

    @property
    def limit(self) -> str:
        """The largest loss, or `compute` while the efficiency is still good."""
        if self.efficiency >= _GOOD:
            return "compute"
        losses = self.losses
        return max(losses, key=lambda cause: losses[cause])


def forecast(one: float, share: Share, link: Link, lanes: int) -> Forecast:
    """Predict a world; `one`: seconds per step of one rank alone."""
    transfer, waiting = link.transfer(share.exchanges, share.ranks), link.waiting(share.exchanges, share.ranks)
    return Forecast(share.ranks, lanes, one, share.seconds, transfer, waiting)


@dataclass(frozen=True)
class Check:
    """A measured world beside its prediction, which knows only one rank's speed and the link."""

    ranks: int
    measured: float
    """Steps a second over all ranks."""
    predicted: float
    crowding: float
    """Ranks per device; 1 = each has its own."""

    @property
    def error(self) -> float:
        """Relative error of the predicted speed; positive = predicted too fast."""
        return self.predicted / self.measured - 1


def check(measured: float, expected: Forecast, crowding: float) -> Check:
    """Compare; ranks that share a device take turns on it, so their compute time is multiplied by `crowding`."""
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
    """Everything predicted for one workload."""

    link: Link
    forecasts: list[Forecast]
    """Worlds that were not measured, smallest first."""
    checks: list[Check]
    """Worlds that were measured."""
    impossible: dict[int, str]
    """World sizes that the configuration does not allow, and the reason."""
    exchanges: Exchanges | None
    """Per update, in the largest world that was rehearsed; None if none could be."""
    steps: float
    """Steps per update in that world."""


def sizes_up_to(largest: int, measured: int) -> list[int]:
    """The world sizes to predict: the powers of two above the largest measured one, and the largest."""
    doubled = [size for power in range(1, largest.bit_length()) if measured < (size := 2**power) < largest]
    return [*doubled, largest]
