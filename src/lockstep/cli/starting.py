"""From a resolved run to its ranks: here in this process, by the launcher, or as one of its ranks."""

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lockstep.config.config import AnyConfig
from lockstep.config.fields import Range
from lockstep.config.run_settings import FREE_TO_CHANGE, PLACES
from lockstep.config.values import shown
from lockstep.errors import LockstepError, NoValidCheckpoint, RunFailed, UserError
from lockstep.launch import environment, launcher, rank_process, resources
from lockstep.launch.machines import Machines
from lockstep.launch.restarts import Decision
from lockstep.launch.secret import shared_secret
from lockstep.output import open_missing_streams, suggest, tell
from lockstep.run import requested_run
from lockstep.run.plan import plan_lines
from lockstep.run.requested_run import RequestedRun
from lockstep.storage import run_events
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_status import RunFacts
from lockstep.workloads import registry
from lockstep.workloads.requests import Tune
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from lockstep.reporting.display import Detail


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Where the run is started."""

    gpus: Annotated[int | None, Range(at_least=0, at_most=4096)] = None
    """GPUs of this machine to use, one rank each; none = all that are visible, up to the lanes of the run."""
    ranks: Annotated[int | None, Range(at_least=0, at_most=4096)] = None
    """Processes to start on this machine; they share GPUs or cores if there are fewer of those."""
    nnodes: str = "1"
    """Number of machines, or a range such as 1:4: then machines may join and leave during the run."""
    rdzv_endpoint: str = ""
    """HOST:PORT of the rendezvous; HOST is one of the machines, in a network that all of them trust."""
    max_restarts: Annotated[int, Range(at_least=0, at_most=1000)] = 3
    """How many times in a row the ranks may be restarted without progress after one died."""
    quiet: bool = False
    """Print only warnings, errors and the result."""
    verbose: bool = False
    """Also print the workload's own lines, if it has any (trading, snakes3v3)."""

    @property
    def detail(self) -> "Detail":
        """How much is printed."""
        if self.quiet and self.verbose:
            raise UserError("--quiet and --verbose: only one at a time")
        return "quiet" if self.quiet else "verbose" if self.verbose else "normal"


def read_run(run: RunDirectory) -> tuple[Workload, AnyConfig]:
    """The workload and the configuration that a run was started with."""
    name, text = run.read_config()
    workload = registry.load_stored(name, run.path)
    return workload, workload.read_config(text, str(run.path / "config.yaml"), stored_in=run.path)


def start(
    workload: Workload,
    wanted: RequestedRun,
    options: LaunchOptions,
    arguments: list[str],
    must_resume: bool = False,
) -> int:
    """Run as one rank if a launcher started this process, else start the ranks; returns the exit code.

    arguments: the command line, which the launcher passes on to its ranks.
    """
    resources.keep_memory()
    open_missing_streams()
    if environment.launched():
        rank_process.enter_rank()
        return _be_a_rank(workload, wanted, rank_process.halvings(), must_resume, options.detail)
    machines = Machines.parse(options.nnodes, options.rdzv_endpoint)
    ranks, idle = ranks_here(wanted.config, options, machines)
    if machines is not None:
        _check_for_machines(wanted.config, machines)
    # Each rank's sockets and pipes need file descriptors, more than the default limit allows for large worlds.
    resources.allow_descriptors(ranks * (machines.most if machines else 1))
    config = wanted.config.for_world(ranks * (machines.most if machines else 1))
    folder = Path(config.run.runs_dir)
    named = bool(config.run.run_name)
    run = RunDirectory.named(folder, config.run.run_name) if named else RunDirectory.fresh(folder, _new_name(workload))
    wanted, config = wanted.named(run.name), config.replace(run_name=run.name)
    _check_same_run(run, workload, config, must_resume)
    # Creates the folder, removed if no run started; with several machines another one may already use it.
    with run.prepared(keeps=machines is not None):
        for line in idle:
            tell(line)
        if options.detail != "quiet":
            # At once: importing PyTorch takes seconds, on a busy machine many.
            tell(f"starting {workload.name} on {ranks} rank{'s' if ranks > 1 else ''}: importing PyTorch ...")
        if ranks == 1 and machines is None:
            with _crash_noted(run):
                code = _train_alone(workload, wanted, must_resume, options.detail)
        else:
            if not must_resume and not named:
                # The ranks must agree on the name, which came from the clock.
                arguments = [*arguments, "--run-name", run.name]
            secret = shared_secret(run.path) if machines else None
            with requested_run.handed_over(wanted):
                code = _launch(arguments, ranks, machines, secret, workload, config, options, run)
    if code == 0 and options.detail != "quiet":
        path = shlex.quote(str(run.path))
        suggest(f"lockstep eval {path}", f"lockstep play {path}")
    return code


def _new_name(workload: Workload) -> str:
    return f"{workload.name}-{datetime.now():%Y%m%d-%H%M%S}"


def ranks_here(config: AnyConfig, options: LaunchOptions, machines: Machines | None) -> tuple[int, list[str]]:
    """The number of ranks to start on this machine, and a line if GPUs stay idle that were not requested by number."""
    ranks = resources.decide_ranks(options.gpus, options.ranks)
    if config.run.device == "mps" and (ranks > 1 or machines is not None):
        raise UserError(
            "device mps: gloo cannot send an Apple GPU's tensors between ranks; use one rank, or --device cpu"
        )
    if machines is not None or options.gpus is not None or options.ranks is not None:
        return ranks, []
    used = config.ranks_with_lanes(ranks)
    idle = f"{used} of {ranks} GPUs used: the run has only so many lanes; to use all GPUs, {config.more_lanes(ranks)}"
    return used, [] if used == ranks else [idle]


def tuner(workload: Workload, options: LaunchOptions) -> Tune:
    """How sizes are tried for a run that is started here."""

    def tuned(candidates: Sequence[AnyConfig]) -> tuple[AnyConfig, list[str]]:
        from lockstep.run import autotune

        ranks, _ = ranks_here(candidates[0], options, Machines.parse(options.nnodes, options.rdzv_endpoint))
        return autotune.tuned(candidates, ranks, "lockstep.cli.short_runs:time_anew", workload.target)

    return tuned


def _launch(
    arguments: list[str],
    ranks: int,
    machines: Machines | None,
    secret: str | None,
    workload: Workload,
    config: AnyConfig,
    options: LaunchOptions,
    run: RunDirectory,
) -> int:
    def noted(decision: Decision) -> None:
        if decision.restart:
            run_events.note(run.path, "restart", decision.lines[-1])
        elif decision.reason:
            run_events.note(run.path, "failed", decision.reason)

    return launcher.run_lockstep(
        arguments,
        ranks,
        machines=machines,
        secret=secret,
        threads=config.run.threads or None,
        max_restarts=options.max_restarts,
        timeout=config.run.timeout,
        smaller=lambda times: _how_to_halve(config, times),
        modules=("lockstep.run.session", *workload.preloads),
        noted=noted,
    )


def _check_for_machines(config: AnyConfig, machines: Machines) -> None:
    if not config.run.run_name:
        raise UserError("--run-name is missing: with several machines, give each of them the same one")
    if config.run.scaling == "weak" and machines.most > machines.least:
        raise UserError(
            f"--nnodes {machines.least}:{machines.most}: with --scaling weak the experiment would change whenever a "
            "machine joins or leaves; use --scaling strong, or a fixed number of machines"
        )


def _how_to_halve(config: AnyConfig, times: int) -> str | None:
    """The flag that halves the micro-batches this many times; None if they cannot be split further."""
    halved = config.halved(times)
    if halved is None:
        return None
    ((name, (_, value)),) = halved.differences(config).items()
    return f"--{name.replace('_', '-')} {value}"


@contextlib.contextmanager
def _crash_noted(run: RunDirectory) -> Iterator[None]:
    """Note why a run without a launcher ended; what the run itself raises on purpose it has noted already."""
    try:
        yield
    except LockstepError:
        raise
    except Exception as error:
        run_events.note(run.path, "failed", f"{type(error).__name__}: {error}")
        raise


def _train_alone(workload: Workload, wanted: RequestedRun, must_resume: bool, detail: "Detail") -> int:
    """Train as the only rank; if memory runs out, retry with micro-batches half as large."""
    from lockstep.launch.failures import is_out_of_memory

    times = 0
    while True:
        try:
            return _be_a_rank(workload, wanted, times, must_resume, detail)
        except (MemoryError, RuntimeError) as error:
            problem = f"{type(error).__name__}: {error}"
            flag = _how_to_halve(wanted.config, times + 1)
            if not is_out_of_memory(problem):
                raise
            if flag is None:
                raise RunFailed(f"out of memory, and batches cannot be split further: {problem}") from error
        # Retry outside the except block: the exception's traceback keeps the failed attempt's tensors alive.
        times += 1
        tell(f"lockstep: {problem}; retrying with micro-batches half as large ({flag})", sys.stderr)


def _check_same_run(run: RunDirectory, workload: Workload, config: AnyConfig, must_resume: bool) -> None:
    """Refuse to continue an existing run as another experiment, before any process starts."""
    if must_resume:
        return
    if not (run.path / "config.yaml").exists():
        if any((run.path / "checkpoints").glob("step-*")):
            raise UserError(
                f"run {run.name}: has checkpoints but no config.yaml; put it back (final/ and best/ hold copies), or "
                "choose another --run-name"
            )
        return
    check_same_experiment(run, workload, config)
    if run.status().state == "finished":
        raise UserError(
            f"run {run.name}: is finished; choose another --run-name, or extend it with `lockstep resume {run.path} "
            f"{config.length_flag} N`"
        )


def check_same_experiment(
    run: RunDirectory, workload: Workload, config: AnyConfig, name_flag: str = "--run-name"
) -> None:
    """UserError unless an existing run was started with the same settings, as far as they decide its result.

    name_flag: with which the user would choose another place.
    """
    stored_name, _ = run.read_config()
    if stored_name != workload.target:
        raise UserError(
            f"run {run.name}: is a run of {stored_name}, not of {workload.name}; choose another {name_flag}"
        )
    _, stored = read_run(run)
    for name, (old, new) in config.differences(stored).items():
        # Runs of earlier versions say `fast` where they were asked for nothing.
        same = name == "sync" and {config.sync_on(device) for device in ("cpu", "cuda", "mps")} == {old}
        if name not in FREE_TO_CHANGE and not same:
            raise UserError(
                f"run {run.name}: was started with {name} {shown(old)}, not {shown(new)}; choose another {name_flag}, "
                f"or, if network, environments and lanes stay the same, change it with "
                f"`lockstep resume {run.path} --{name.replace('_', '-')} ...`"
            )


def _be_a_rank(workload: Workload, wanted: RequestedRun, halvings: int, must_resume: bool, detail: "Detail") -> int:
    """Train as one rank of the world, with micro-batches halved `halvings` times. Called by every rank."""
    from lockstep.distributed import debug_level, nccl
    from lockstep.distributed.world import describe_device, open_world
    from lockstep.run import consensus, session

    config = wanted.config if wanted.config.run.run_name else wanted.config.replace(run_name=_new_name(workload))
    # NCCL reads its environment variables when the process group is created, so they are set before.
    settings = nccl.apply(nccl.detect(deterministic=config.run.deterministic))
    settings += debug_level.lower() if config.run.sync != "exact" else []
    with open_world(config.run.device, config.run.timeout) as world:
        config = consensus.settle(world, workload.target, wanted.asked, config)
        # Only now: ranks must agree on what the user asked for, and halving applies to all of them alike.
        config = (config.halved(halvings) or config).for_world(world.size)
        run = RunDirectory.named(Path(config.run.runs_dir), config.run.run_name)
        if must_resume and not any((run.path / "checkpoints").glob("step-*")):
            raise NoValidCheckpoint(f"{run.path}: has no checkpoint to resume from; start it with `lockstep train`")
        device, sync = describe_device(world.device), config.sync_on(world.device.type)
        plan = plan_lines(workload.name, config, world.size, device, sync, world.carrier.description)
        lines, narrator = [*wanted.notes, *plan, *settings], workload.narrator(config, world)
        session.train(
            run,
            workload.target,
            config,
            world,
            workload.build,
            lines,
            narrator,
            step_back=wanted.step_back,
            reader=workload,
            facts=_facts(run, workload, config, wanted.preset),
            detail=detail,
        )
    return 0


def _facts(run: RunDirectory, workload: Workload, config: AnyConfig, preset: str) -> RunFacts:
    """The preset of a run and the settings in which the run differs from it."""
    # A resumed run keeps the preset that it was started from.
    preset = preset or run.status().facts.preset
    if preset not in workload.presets:
        return RunFacts()
    origin = workload.preset(preset, config.run.algorithm, config.run.network)
    changed = {name: value for name, (_, value) in config.differences(origin).items() if name not in PLACES}
    return RunFacts(preset=preset, changed=changed)
