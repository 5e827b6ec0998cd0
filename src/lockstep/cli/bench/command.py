"""`lockstep bench`: the speed of each number of ranks, where the time goes, and how other programs compare."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

import psutil

from lockstep.cli import argv as command
from lockstep.cli.bench import cost_model, forecast, report
from lockstep.cli.bench.cost_model import Prediction
from lockstep.cli.bench.forecast import Machine, Rehearsal
from lockstep.cli.bench.report import Bench, Like, Peer, Row, told
from lockstep.compute.machine import this_machine
from lockstep.config.config import AnyConfig
from lockstep.config.fields import Count, OffOrCount, Pattern, Range, nearest
from lockstep.config.sources import choices, to_yaml
from lockstep.errors import UserError
from lockstep.output import counted, show
from lockstep.workloads import registry
from lockstep.workloads.capabilities import HasPeers
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from lockstep.distributed.pool import RankPool

USAGE = (
    "lockstep bench [WORKLOAD] [--ranks 1,2] [--against NAME] [--preset NAME] [--updates N] [--seconds S] [--json]\n"
    "       [--predict N [--bandwidth GB/s] [--latency MICROSECONDS]] [--FIELD VALUE]...\n\n"
    "Without a WORKLOAD all of them are measured. On a CPU each rank has one thread unless --threads says otherwise.\n"
    "Everything that is compared takes turns, round after round, so that other load on the machine affects all alike.\n"
    "--predict N estimates the speed of up to N ranks, each on a device like this one: one rank computes the share of\n"
    "a rank of N, its exchanges are counted, and their time follows from the link, as measured here or as given."
)
# Seconds. One measurement may hold many updates of a large preset; a hang is still found within the hour.
_TIMEOUT = 3600.0
# Updates that are not counted. A GPU captures its kernels during the first ones; a CPU only allocates memory.
_WARM_UPS = {"cuda": 3}


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured."""

    ranks: Annotated[str, Pattern(r"\d{1,3}(,\d{1,3})*", "numbers of ranks, such as 1,2,4")] = "1,2"
    """Numbers of ranks to measure; one rank is always included, as the baseline."""
    against: str = ""
    """Another program to train the same problem on as many cores, such as sb3; none = no comparison."""
    preset: str = ""
    """Named configuration to train; none = the first that exists of: the one named like --against, small, debug."""
    rounds: Count = 3
    """Times that everything is measured; medians are reported."""
    updates: OffOrCount = 0
    """Updates of each measurement; 0 = as many as fit into --seconds, at least one."""
    seconds: Annotated[float, Range(above=0)] = 8.0
    """Seconds of each measurement."""
    predict: OffOrCount = 0
    """Also predict worlds of up to this many ranks; 0 = no prediction."""
    bandwidth: Annotated[float, Range(at_least=0)] = 0.0
    """For --predict: GB/s that each rank can send while all exchange gradients; 0 = as measured here."""
    latency: Annotated[float, Range(at_least=0)] = 0.0
    """For --predict: microseconds of the smallest exchange between two ranks; 0 = as measured here."""
    json: bool = False
    """Print everything as one JSON object instead of tables."""


@dataclass(frozen=True)
class _Plan:
    """What will be measured of one workload."""

    workload: Workload
    preset: str
    config: AnyConfig
    sizes: list[int]
    against: str
    predicted: list[int] = field(default_factory=list)
    """Larger worlds to predict."""

    @property
    def threads(self) -> int:
        """Threads of each rank."""
        return self.config.run.threads or 1

    def text(self, ranks: int, device: str, **changes: Any) -> str:
        """The configuration for a number of ranks, as the YAML text that is sent to them."""
        settings = {"threads": self.threads, "device": device, **changes}
        return to_yaml(self.config.for_world(ranks).replace(**settings))

    @property
    def likeness(self) -> dict[str, Any]:
        """The settings that would make our network the other program's, where they differ from ours."""
        if not self.against:
            return {}
        theirs, ours = registry.require(self.workload, HasPeers).like_peers.get(self.against, {}), self.config.values()
        return {name: value for name, value in theirs.items() if ours.get(name) != value}


@dataclass
class _Contender:
    """One thing that is measured: some of our ranks, or another program."""

    name: str
    pool: "RankPool"
    ranks: int
    function: str
    arguments: tuple[Any, ...]
    updates: int = 1
    turns: list[dict[str, Any]] = field(default_factory=list)
    """What rank 0 reported for each round, with the seconds of the slowest rank."""

    @property
    def speeds(self) -> list[float]:
        """Steps a second over all ranks, round by round."""
        return [turn["steps"] / turn["seconds"] for turn in self.turns]

    def train(self, updates: int) -> dict[str, Any]:
        """Train for some updates; returns rank 0's report, with the seconds of the slowest rank."""
        done = _on_ranks(self.pool, self.ranks, self.function, *self.arguments, updates)
        return {**done[0], "seconds": max(rank["seconds"] for rank in done)}

    def warm_up(self, times: int, options: BenchOptions) -> None:
        """Train without measuring, and choose the length of a measurement by the time of the last update."""
        for _ in range(times):
            seconds = self.train(1)["seconds"]
        self.updates = options.updates or max(1, round(options.seconds / seconds))

    def take_turn(self) -> None:
        """Measure once."""
        self.turns.append(self.train(self.updates))
        _say(f"{self.name}: {self.speeds[-1]:,.0f} steps/s")


def bench(arguments: list[str]) -> int:
    """The verb `bench`."""
    command.offer_help(arguments, _help)
    named = arguments[:1] if arguments and not arguments[0].startswith("-") and "=" not in arguments[0] else []
    options, fields = command.take(arguments[len(named) :], BenchOptions())
    plans = {name: _plan(registry.load(name), options, fields, bool(named)) for name in named or registry.names()}
    found = []
    for name, plan in plans.items():
        found.append(_measure(plan, options))
        if not options.json:
            report.show(found[-1], ["lockstep", "train", name, *fields])
    if options.json:
        print(json.dumps({"workloads": [report.as_json(result) for result in found]}, indent=1))
    return 0


def _plan(workload: Workload, options: BenchOptions, fields: list[str], strict: bool) -> _Plan:
    """Resolve what to measure of one workload; every user error is raised here, before anything starts.

    strict: the user named this workload, so an unknown --against is an error; else it is only not compared.
    """
    peers, wanted = list(workload.peers if isinstance(workload, HasPeers) else ()), options.against
    if wanted and wanted not in peers and strict:
        near = nearest(wanted, peers)
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(
            f"--against '{wanted}': unknown for {workload.name}; {hint}allowed: {', '.join(peers) or 'none'}"
        )
    against = wanted if wanted in peers else ""
    preset = options.preset or next(name for name in (against, "small", "debug") if name in workload.presets)
    resolved = workload.resolve(preset, overrides=fields)
    config = workload.fit(resolved.config, resolved.explicit)[0]
    sizes = sorted({1, *(int(size) for size in options.ranks.split(","))})
    if sizes[0] < 1:
        raise UserError(f"--ranks {options.ranks}: at least 1 rank is needed")
    config.for_world(sizes[-1])  # raises UserError if the largest world does not fit this configuration
    return _Plan(workload, preset, config, sizes, against, _predicted(options, sizes))


def _predicted(options: BenchOptions, sizes: list[int]) -> list[int]:
    """The world sizes to predict; UserError if the options do not allow a prediction."""
    wanted = options.predict
    if not wanted:
        given = next((name for name in ("bandwidth", "latency") if getattr(options, name)), None)
        if given:
            raise UserError(f"--{given} {getattr(options, given):g}: only used by a prediction; add --predict N")
        return []
    if wanted <= sizes[-1]:
        raise UserError(
            f"--predict {wanted}: {sizes[-1]} ranks are measured; predict more than that, or leave --predict out"
        )
    if sizes[-1] == 1 and not (options.bandwidth and options.latency):
        raise UserError(
            f"--predict {wanted}: one rank cannot measure an exchange; measure two (--ranks 1,2), or give --bandwidth "
            "and --latency"
        )
    return cost_model.sizes_up_to(wanted, sizes[-1])


def _measure(plan: _Plan, options: BenchOptions) -> Bench:
    from lockstep.distributed.pool import RankPool
    from lockstep.distributed.world import choose_device, describe_device

    device = choose_device(plan.config.run.device, 0)
    kind, name = device.type, plan.workload.name
    # The other program gets as many threads as our ranks have together; on a GPU threads do not matter.
    counts = sorted({plan.threads * (size if kind == "cpu" else 1) for size in plan.sizes if plan.against})
    _say(f"{name}, preset {plan.preset}: {options.rounds} round(s) ...")
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(RankPool(plan.sizes[-1], kind, plan.threads))
        # The other program runs in its own processes: it must not inherit what we set globally in ours (threads,
        # deterministic kernels), which its users would not have.
        pools = {count: stack.enter_context(RankPool(1, kind, count)) for count in counts}
        ours = {
            size: _Contender(counted(size, "rank"), pool, size, "time_updates", (name, plan.text(size, kind)))
            for size in plan.sizes
        }
        alike = {
            size: _Contender(
                f"{counted(size, 'rank')}, {told(plan.likeness)}",
                pool,
                size,
                "time_updates",
                (name, plan.text(size, kind, **plan.likeness)),
            )
            for size in (plan.sizes if plan.likeness else [])
        }
        arguments = (name, plan.text(1, kind), plan.against)
        theirs = {
            count: _Contender(f"{plan.against}, {counted(count, 'thread')}", pools[count], 1, "time_peer", arguments)
            for count in counts
        }
        rehearsed = _rehearsals(plan, stack, kind) if plan.predicted else {}
        used_by_others = _watch_others()
        ours_and_like = [*ours.values(), *alike.values(), *rehearsed.values()]
        _compete(plan, [*theirs.values()], ours_and_like, options, _WARM_UPS.get(kind, 1))
        rows = _look_inside(plan, pool, kind, [*ours.values()])
        others = used_by_others()
        outlook = _look_ahead(plan, options, pool, kind, ours, rehearsed) if plan.predicted else None
    peers = [Peer(plan.against, count, contender.speeds) for count, contender in theirs.items()]
    where, sync = (describe_device(device), this_machine().logical_cores), plan.config.sync_on(kind)
    likes = [Like(size, plan.likeness, contender.speeds) for size, contender in alike.items()]
    return Bench(name, plan.preset, *where, plan.threads, others, rows, peers, likes, outlook, sync)


def _compete(
    plan: _Plan, theirs: list[_Contender], ours: list[_Contender], options: BenchOptions, warm_ups: int
) -> None:
    """Let all take turns, in alternating order, so that no contender always follows the same one."""
    from lockstep.distributed.pool import RankError

    try:
        for contender in theirs:
            contender.warm_up(1, options)
    except RankError as error:
        if error.kind != "ModuleNotFoundError":
            raise
        extra = f"pip install 'lockstep-train[{plan.against}]'"
        raise UserError(f"--against {plan.against}: {error.message}; {extra}") from error
    for contender in ours:
        contender.warm_up(warm_ups, options)
    contenders = [*ours, *theirs]
    for _ in range(options.rounds):
        for contender in contenders:
            contender.take_turn()
        contenders.reverse()


def _look_inside(plan: _Plan, pool: "RankPool", kind: str, ours: list[_Contender]) -> list[Row]:
    """Profile each number of ranks, in a separate pass because profiling costs time."""
    _say("where the time goes ...")
    most = ours[-1].ranks
    # The FLOP counter sees only eager operations, so this pass does not compile.
    counted = _on_ranks(pool, most, "count_operations", plan.workload.target, plan.text(most, kind, compile="none"))
    operations = sum(rank["operations"] for rank in counted) / counted[0]["steps"]
    rows = []
    for contender in ours:
        matmul = sum(_on_ranks(pool, contender.ranks, "matmul_speed"))
        looks = _on_ranks(pool, contender.ranks, "profile_updates", *contender.arguments, contender.updates)
        names = sorted({part for look in looks for part in look["parts"]})
        parts = {name: fmean(look["parts"].get(name, 0.0) for look in looks) / looks[0]["steps"] for name in names}
        whole = fmean(look["seconds"] for look in looks) / looks[0]["steps"]
        parts["other"] = max(0.0, whole - sum(parts.values()))
        gradient_updates = looks[0]["gradient_updates"] / looks[0]["steps"]
        rows.append(Row(contender.ranks, contender.speeds, parts, operations, matmul, gradient_updates))
    return rows


def _rehearsals(plan: _Plan, stack: contextlib.ExitStack, kind: str) -> dict[int, _Contender]:
    """A contender for each world that is predicted or checked: one rank that computes rank 0's share of it."""
    from lockstep.distributed.pool import RankPool

    able, _ = forecast.possible(plan.config, plan.predicted)
    # In its own process, DDP finds a process group of one and so exchanges nothing.
    pool = stack.enter_context(RankPool(1, kind, plan.threads))
    return {
        size: _Contender(
            f"1 of {size} ranks, without exchanges",
            pool,
            1,
            "time_rehearsal",
            (plan.workload.target, plan.text(size, kind), size),
        )
        for size in [*plan.sizes[1:], *able]
    }


def _look_ahead(
    plan: _Plan,
    options: BenchOptions,
    pool: "RankPool",
    kind: str,
    ours: dict[int, _Contender],
    rehearsed: dict[int, _Contender],
) -> Prediction:
    """Predict larger worlds from what was measured."""
    import torch

    own = torch.cuda.device_count() if kind == "cuda" else this_machine().logical_cores / plan.threads
    machine = Machine(kind, own if kind in ("cpu", "cuda") else 1)
    rehearsals = [Rehearsal(size, contender.updates, contender.turns) for size, contender in rehearsed.items()]
    here = forecast.measure_link(pool, plan.sizes, rehearsals, machine) if plan.sizes[-1] > 1 else None
    there = forecast.given_link(here, options.bandwidth, options.latency, machine)
    speeds = {size: median(contender.speeds) for size, contender in ours.items()}
    return forecast.predict(plan.config, plan.predicted, speeds, rehearsals, here, there, machine)


def _watch_others() -> Callable[[], float]:
    """Start counting other programs' CPU time; calling the result gives the mean number of cores they used since."""
    start, before = time.perf_counter(), _seconds_of_others()
    return lambda: max(0.0, (_seconds_of_others() - before) / (time.perf_counter() - start))


def _seconds_of_others() -> float:
    """CPU seconds of this machine that were used neither by this process nor by its ranks."""
    machine, me = psutil.cpu_times(), psutil.Process()
    ours = [process.cpu_times() for process in (me, *me.children())]
    return machine.user + machine.nice + machine.system - sum(times.user + times.system for times in ours)


def _on_ranks(pool: "RankPool", ranks: int, function: str, *arguments: Any) -> list[Any]:
    return pool.run(f"lockstep.cli.short_runs:{function}", *arguments, ranks=ranks, timeout=_TIMEOUT)


def _say(line: str) -> None:
    """Print progress to stderr, so that stdout holds only results."""
    show(line, sys.stderr)


def _help(arguments: list[str]) -> str:
    named = bool(arguments) and registry.is_name(arguments[0])
    more = registry.load(arguments[0]).layout(**choices(arguments[1:])).schema if named else None
    return command.help_text(USAGE, BenchOptions, more)
