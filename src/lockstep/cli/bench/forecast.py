"""The part of a benchmark that predicts: which worlds to rehearse, how the link is measured, and the forecast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from lockstep.cli.bench.cost_model import Exchanges, Link, Prediction, Share, check, forecast
from lockstep.config.config import AnyConfig
from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.distributed.pool import RankPool

# Bytes. The link is measured with an all-reduce as large as the run's largest, within these bounds: a smaller one
# would measure latency instead of bandwidth.
_LEAST, _MOST = 2**22, 2**28


@dataclass(frozen=True)
class Machine:
    """What the ranks of a benchmark run on."""

    kind: str
    devices: float
    """How many ranks have a device of their own: GPUs, or cores by the threads of a rank."""

    def crowding(self, ranks: int) -> float:
        """How many ranks there are for each device that they share."""
        return max(1.0, ranks / self.devices)


@dataclass(frozen=True)
class Rehearsal:
    """One rank's share of a world, measured."""

    ranks: int
    updates: int
    """Updates of a turn."""
    turns: Sequence[Mapping[str, Any]]
    """Steps, seconds and exchanges, round by round."""

    @property
    def steps(self) -> float:
        """Steps of an update."""
        return sum(turn["steps"] for turn in self.turns) / (self.updates * len(self.turns))

    @property
    def largest(self) -> int:
        """Bytes of the largest exchange."""
        return max(turn["exchanges"]["largest"] for turn in self.turns)

    def share(self) -> Share:
        """What a rank computes and exchanges for one step."""
        seconds = median(turn["seconds"] / turn["steps"] for turn in self.turns)
        steps = sum(turn["steps"] for turn in self.turns)
        return Share(self.ranks, seconds, Exchanges.per_step((turn["exchanges"] for turn in self.turns), steps))

    def update(self) -> Exchanges:
        """What a rank exchanges in one update."""
        return Exchanges.per_step((turn["exchanges"] for turn in self.turns), self.updates * len(self.turns))


def possible(config: AnyConfig, sizes: Sequence[int]) -> tuple[list[int], dict[int, str]]:
    """The world sizes that this configuration allows, and the error message for each of the others."""
    able, impossible = [], {}
    for size in sizes:
        try:
            config.for_world(size)
            able.append(size)
        except UserError as error:
            impossible[size] = str(error)
    return able, impossible


def predict(
    config: AnyConfig,
    sizes: Sequence[int],
    speeds: Mapping[int, float],
    rehearsals: Sequence[Rehearsal],
    here: Link | None,
    there: Link,
    machine: Machine,
) -> Prediction:
    """Predict worlds of `sizes` ranks.

    speeds: measured steps a second, by number of ranks. here: the link between the measured ranks; there: the link
    between the ranks of the larger worlds.
    """
    one = 1 / speeds[1]
    shares = {rehearsal.ranks: rehearsal.share() for rehearsal in rehearsals}
    lanes = {ranks: config.for_world(ranks).effective_lanes for ranks in shares}
    checks = [
        check(speeds[ranks], forecast(one, shares[ranks], here, lanes[ranks]), machine.crowding(ranks))
        for ranks in sorted(shares.keys() & speeds.keys())
        if here is not None
    ]
    forecasts = [forecast(one, shares[ranks], there, lanes[ranks]) for ranks in sizes if ranks in shares]
    last = max(rehearsals, key=lambda rehearsal: rehearsal.ranks, default=None)
    return Prediction(
        link=there,
        forecasts=forecasts,
        checks=checks,
        impossible=possible(config, sizes)[1],
        exchanges=last.update() if last else None,
        steps=last.steps if last else 0.0,
    )


def measure_link(pool: "RankPool", sizes: Sequence[int], rehearsals: Sequence[Rehearsal], machine: Machine) -> Link:
    """Measure the link between as many ranks as have their own device, but at least two."""
    ranks = max((size for size in sizes if machine.crowding(size) == 1 and size > 1), default=2)
    size = min(_MOST, max(_LEAST, *(rehearsal.largest for rehearsal in rehearsals)))
    found = pool.run("lockstep.distributed.bandwidth:exchange_seconds", size, ranks=ranks, timeout=600.0)[0]
    shared = {"cpu": "cores", "cuda": "a GPU"}.get(machine.kind, "a device")
    crowd = f" that share {shared}" if machine.crowding(ranks) > 1 else ""
    source = f"measured between {ranks} ranks here{crowd}, {found['backend']}"
    return Link.measured(found, size, ranks, source)


def given_link(here: Link | None, bandwidth: float, latency: float, machine: Machine) -> Link:
    """The link that the user described, in GB/s and microseconds; what is not given (0) is taken from `here`."""
    if here is None:
        return Link(1e9 * bandwidth, 1e-6 * latency, 1e-6 * latency, machine.kind == "cuda", "given")
    link = here
    if bandwidth:
        link = replace(link, bandwidth=1e9 * bandwidth, source=f"bandwidth given, latency {here.source}")
    if latency:
        source = f"latency given, bandwidth {here.source}"
        link = replace(link, latency=1e-6 * latency, flag_latency=1e-6 * latency, source=source)
    return replace(link, source="given") if bandwidth and latency else link
