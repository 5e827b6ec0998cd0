"""A benchmark's results as tables, as JSON, and as sentences that explain why more ranks did or did not help."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from lockstep.cli.bench import forecast_report
from lockstep.cli.bench.cost_model import Prediction
from lockstep.output import suggest

PARTS = ("environment", "acting", "learning", "sync", "idle", "other")
_WAITING = ("sync", "idle")
_CALCULATING = ("acting", "learning")
# A loss below this share of a rank's time is not reported.
_NEGLIGIBLE = 0.03
# Warn when other programs used more than this many cores.
_DISTURBING = 0.1


@dataclass(frozen=True)
class Row:
    """One number of ranks."""

    ranks: int
    speeds: list[float]
    """Steps a second over all ranks, round by round."""
    parts: dict[str, float]
    """Seconds of a rank for one step of the world, by part, measured in a separate pass."""
    operations: float
    """Floating-point operations of the networks for one step."""
    matmul: float
    """Floating-point operations a second of a large matrix product, all ranks together."""
    gradient_updates: float = 0.0
    """Gradient updates for one step, for learners that count them separately from updates."""

    @property
    def speed(self) -> float:
        """Steps a second over all ranks."""
        return median(self.speeds)

    @property
    def work(self) -> float:
        """Seconds of all ranks together for one step, without the time they wait for each other."""
        return self.ranks * sum(seconds for part, seconds in self.parts.items() if part not in _WAITING)

    @property
    def arithmetic(self) -> float:
        """Floating-point operations a second while ranks act and learn, all ranks together."""
        seconds = sum(self.parts.get(part, 0.0) for part in _CALCULATING)
        return self.operations / seconds if seconds else 0.0

    def share(self, part: str) -> float:
        """The part's share of a rank's time."""
        return self.parts.get(part, 0.0) / sum(self.parts.values())

    def ratio(self, one: "Row") -> float:
        """How many times as fast as one rank."""
        return self.speed / one.speed


@dataclass(frozen=True)
class Peer:
    """Another program with some number of threads."""

    name: str
    threads: int
    speeds: list[float]
    """Steps a second, round by round."""

    @property
    def speed(self) -> float:
        """Steps a second."""
        return median(self.speeds)


@dataclass(frozen=True)
class Like:
    """Some of our ranks, training the other program's network."""

    ranks: int
    fields: dict[str, Any]
    """The settings that make it the other program's network."""
    speeds: list[float]
    """Steps a second over all ranks, round by round."""

    @property
    def speed(self) -> float:
        """Steps a second over all ranks."""
        return median(self.speeds)


@dataclass(frozen=True)
class Bench:
    """All that was measured of one workload; the first row is one rank."""

    workload: str
    preset: str
    device: str
    cores: int
    threads: int
    others: float
    """Cores that other programs used meanwhile."""
    rows: list[Row]
    peers: list[Peer]
    likes: list[Like] = field(default_factory=list)
    prediction: Prediction | None = None
    """The forecast for larger worlds, if it was asked for."""
    sync: str = "fast"
    """How ranks were kept equal."""

    def rival(self, row: Row | Like) -> Peer | None:
        """The peer to compare with: the other program at its fastest with no more threads than these ranks have."""
        fitting = [peer for peer in self.peers if peer.threads <= row.ranks * self.threads]
        return max(fitting, key=lambda peer: peer.speed, default=None)


def show(bench: Bench, training: Sequence[str]) -> None:
    """Print tables and sentences; `training`: the command that trains what was measured, without preset and ranks."""
    console = Console()
    console.print(_speed_table(bench))
    console.print(_split_table(bench))
    for sentence in sentences(bench):
        console.print(sentence, highlight=False)
    if bench.prediction is not None:
        speeds = {row.ranks: row.speed for row in bench.rows}
        title = f"{bench.workload}, preset {bench.preset}"
        console.print(forecast_report.table(title, bench.device, speeds, bench.prediction))
        for sentence in forecast_report.sentences(bench.prediction):
            console.print(sentence, highlight=False)
    fastest = max(bench.rows, key=lambda row: row.speed)
    suggest(shlex.join([*training, "--preset", bench.preset, "--ranks", str(fastest.ranks)]))


def as_json(bench: Bench) -> dict[str, Any]:
    """Everything, under names that state their unit."""
    one = bench.rows[0]
    found = {
        "workload": bench.workload,
        "preset": bench.preset,
        "device": bench.device,
        "sync": bench.sync,
        "cores": bench.cores,
        "threads_per_rank": bench.threads,
        "cores_used_by_other_programs": bench.others,
        "ranks": [_row_json(row, one, bench.rival(row)) for row in bench.rows],
        "peers": [
            {
                "name": peer.name,
                "threads": peer.threads,
                "steps_per_second": peer.speed,
                "steps_per_second_by_round": peer.speeds,
            }
            for peer in bench.peers
        ],
        "with_the_peers_network": [_like_json(like, bench.rival(like)) for like in bench.likes],
        "in_words": sentences(bench),
    }
    if bench.prediction is not None:
        found["prediction"] = forecast_report.as_json(bench.prediction)
    return found


def _row_json(row: Row, one: Row, rival: Peer | None) -> dict[str, Any]:
    found = {
        "ranks": row.ranks,
        "steps_per_second": row.speed,
        "steps_per_second_by_round": row.speeds,
        "ratio_to_one_rank": row.ratio(one),
        "efficiency": row.ratio(one) / row.ranks,
        "split": {part: row.share(part) for part in _parts([row])},
        "work_seconds_per_step": row.work,
        "learning_seconds_per_step": row.ranks * row.parts.get("learning", 0.0),
        "gflop_per_step": row.operations / 1e9,
        "gflop_per_second": row.arithmetic / 1e9,
        "peak_gflop_per_second": row.matmul / 1e9,
        "share_of_peak": row.arithmetic / row.matmul,
    }
    if row.gradient_updates:
        found["gradient_updates_per_second"] = row.gradient_updates * row.speed
    return found | _against(row, rival)


def _like_json(like: Like, rival: Peer | None) -> dict[str, Any]:
    found = {
        "ranks": like.ranks,
        "fields": like.fields,
        "steps_per_second": like.speed,
        "steps_per_second_by_round": like.speeds,
    }
    return found | _against(like, rival)


def _against(row: Row | Like, rival: Peer | None) -> dict[str, Any]:
    if rival is None:
        return {}
    ratios = _ratios(row, rival)
    numbers = {"threads": rival.threads, "ratio": median(ratios), "ratio_by_round": ratios}
    return {f"against_{rival.name}": numbers}


def sentences(bench: Bench) -> list[str]:
    """Why more ranks did or did not help, and how the other program compares."""
    about_ranks = [_about_ranks(row, bench.rows[0], bench) for row in bench.rows[1:]]
    contenders: list[Row | Like] = [*bench.rows, *bench.likes]
    pairs = [(row, bench.rival(row)) for row in contenders]
    said = about_ranks + [_about_rival(row, rival) for row, rival in pairs if rival is not None]
    if counted := [row for row in bench.rows if row.gradient_updates]:
        each = [f"{row.gradient_updates * row.speed:,.1f} on {_counted(row.ranks, 'rank')}" for row in counted]
        said.append(f"Gradient updates a second: {', '.join(each)}.")
    if bench.others > _DISTURBING:
        used = f"{bench.others:.1f} of this machine's {_counted(bench.cores, 'core')}"
        said.append(f"Other programs used {used} meanwhile: measure again on an idle machine.")
    return said


def _about_rival(row: Row | Like, rival: Peer) -> str:
    ratios = _ratios(row, rival)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f} in {_counted(len(ratios), 'round')}"
    who = f"Lockstep on {_counted(row.ranks, 'rank')}"
    who += f" with {rival.name}'s network ({told(row.fields)})" if isinstance(row, Like) else ""
    return (
        f"{who} is {median(ratios):.2f} times as fast as {rival.name} with "
        f"{_counted(rival.threads, 'thread')} ({spread}): {row.speed:,.0f} and {rival.speed:,.0f} steps/s."
    )


def told(fields: dict[str, Any]) -> str:
    """Settings as text: `name value, name value`."""
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def _ratios(row: Row | Like, rival: Peer) -> list[float]:
    """How many times as fast our ranks were, round by round."""
    return [mine / theirs for mine, theirs in zip(row.speeds, rival.speeds, strict=True)]


def _about_ranks(row: Row, one: Row, bench: Bench) -> str:
    ratio = row.ratio(one)
    result = f"{row.ranks} ranks are {ratio:.2f} times as fast as one (efficiency {ratio / row.ranks:.0%}). "
    if row.ranks * bench.threads > bench.cores and bench.device.startswith("CPU"):
        asked = f"{row.ranks} ranks of {_counted(bench.threads, 'thread')}"
        return result + f"{asked} share {_counted(bench.cores, 'core')}: more ranks cannot help here."
    total = row.ranks * sum(row.parts.values())
    losses = {"idle": row.share("idle"), "sync": row.share("sync"), "work": (row.work - one.work) / total}
    largest = max(losses, key=lambda name: losses[name])
    if losses[largest] < _NEGLIGIBLE:
        return result + "Almost nothing is lost to idle time, exchanges or slower work."
    reason = {
        "idle": "ranks wait for the slowest one before an exchange can start",
        "sync": "the exchange of gradients itself; a larger batch exchanges less often",
        "work": _about_work(row, one),
    }
    name = {"idle": "idle time", "sync": "sync", "work": "slower work"}[largest]
    return result + f"The largest loss is {name}, {losses[largest]:.0%} of a rank's time: {reason[largest]}."


def _about_work(row: Row, one: Row) -> str:
    """Whether the ranks slow each other down on this machine, or each rank's smaller share is less efficient."""
    kept = row.matmul / row.ranks / one.matmul
    costs = f"a step costs {1e3 * one.work:.2f} ms of one rank and {1e3 * row.work:.2f} ms of {row.ranks}"
    if kept < 1 - _NEGLIGIBLE:
        return (
            f"{costs}; a plain matrix product also keeps only {kept:.0%} of its speed when all ranks compute, so they "
            "slow each other down on this machine's cores and memory"
        )
    return f"{costs}, though a matrix product keeps its speed: each rank's smaller share of a batch is less efficient"


def _speed_table(bench: Bench) -> Table:
    where = f"{bench.device}, {_counted(bench.threads, 'thread')} a rank"
    title = f"{bench.workload}, preset {bench.preset}, sync {bench.sync}: {where}"
    table = Table(title=title, caption="GFLOP/s while acting and learning; peak: a large matrix product")
    for column in ("", "steps/s", "spread", "ratio", "efficiency", "GFLOP/s", "of peak"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    one = bench.rows[0]
    for row in bench.rows:
        ratio = row.ratio(one)
        table.add_row(
            _counted(row.ranks, "rank"),
            *_speed_cells(row.speeds),
            f"{ratio:.2f}",
            f"{ratio / row.ranks:.0%}",
            f"{row.arithmetic / 1e9:,.1f}",
            f"{row.arithmetic / row.matmul:.0%}",
        )
    for like in bench.likes:
        table.add_row(f"{like.ranks}, {told(like.fields)}", *_speed_cells(like.speeds))
    for peer in bench.peers:
        table.add_row(f"{peer.name}, {_counted(peer.threads, 'thread')}", *_speed_cells(peer.speeds))
    return table


def _split_table(bench: Bench) -> Table:
    table = Table(title="where a rank's time goes")
    parts = _parts(bench.rows)
    for column in ("", *parts):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for row in bench.rows:
        table.add_row(_counted(row.ranks, "rank"), *(f"{row.share(part):.1%}" for part in parts))
    return table


def _parts(rows: list[Row]) -> list[str]:
    """The parts that every algorithm has, with those of some algorithms in between."""
    special = sorted({part for row in rows for part in row.parts} - set(PARTS))
    return [*PARTS[:3], *special, *PARTS[3:]]


def _speed_cells(speeds: list[float]) -> tuple[str, str]:
    middle = median(speeds)
    return f"{middle:,.0f}", f"±{(max(speeds) - min(speeds)) / 2 / middle:.0%}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
