"""`lockstep train` and `lockstep resume`: from words to a run, on as many ranks as asked for."""

import sys
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

from lockstep.cli import argv as command
from lockstep.compute import kernels
from lockstep.config.fields import Pattern, Range, settings_of
from lockstep.config.run_config import FREE_TO_CHANGE, RunConfig
from lockstep.config.sources import Resolved, from_yaml, resolve
from lockstep.config.values import shown
from lockstep.errors import NoValidCheckpoint, RunFailed, UserError
from lockstep.launch import environment, launcher, rank_process, resources
from lockstep.launch.machines import Machines
from lockstep.launch.secret import shared_secret
from lockstep.output import open_missing_streams, tell
from lockstep.run import hand_over
from lockstep.run.hand_over import Wanted
from lockstep.run.plan import plan_lines
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry
from lockstep.workloads.registry import Workload

USAGE = (
    "lockstep train WORKLOAD [--preset NAME] [--config FILE] [--FIELD VALUE | field=value]... [--gpus N | --ranks N]"
)
RESUME_USAGE = "lockstep resume RUN [--FIELD VALUE | field=value]... [--gpus N | --ranks N]"

_HINT = f"{'hint':12} preset base is made for a GPU, an update can take minutes here; --preset small is made for a CPU"


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Where it runs."""

    gpus: Annotated[int | None, Range(at_least=0, at_most=4096)] = None
    """GPUs of this machine to use, one rank each; none = all that are visible, up to the lanes of the run."""
    ranks: Annotated[int | None, Range(at_least=0, at_most=4096)] = None
    """Processes to start on this machine; they share GPUs or cores where those are fewer."""
    nnodes: str = "1"
    """Machines that take part, or a range of them such as 1:4: then they may come and go while the run goes on."""
    rdzv_endpoint: str = ""
    """HOST:PORT where the machines meet; HOST is one of them, and a network that all of them trust."""
    max_restarts: Annotated[int, Range(at_least=0, at_most=1000)] = 3
    """How often the ranks may be started again without progress after one died."""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(LaunchOptions):
    """Where it is, and where it runs."""

    runs_dir: str = "runs"
    """Directory that runs are looked for in by name."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(LaunchOptions):
    """What it starts from."""

    preset: str = "base"
    """Named configuration to start from; `lockstep list` shows them."""
    config: Annotated[str, Pattern(".+", "the path of a YAML file")] = ""
    """YAML file whose fields override the preset's."""


def train(words: list[str]) -> int:
    """The verb `train`."""
    name, rest = command.take_subject(words, "workload", lambda rest: help_for(rest, USAGE, TrainOptions))
    workload = registry.load(name)
    options, rest = command.take(rest, TrainOptions())
    wanted = hand_over.received(workload.config_class) or _read_wanted(workload, options, rest)
    return start(workload, wanted, options, ["train", *words])


def _read_wanted(workload: Workload, options: TrainOptions, overrides: list[str]) -> Wanted:
    resolved = _resolve(workload, options, overrides)
    config, notes = workload.fit(resolved.config, resolved.explicit)
    return Wanted(resolved.config, config, (*notes, *hints(workload, options.preset, config)))


def hints(workload: Workload, preset: str, config: RunConfig) -> list[str]:
    """What would make this run much faster here."""
    if not _uses_gpus(config):
        return [_HINT] if preset == "base" and "small" in workload.presets else []
    hindrance = kernels.hindrance() if config.device != "mps" else None
    return [f"{'hint':12} {hindrance}: runs on a GPU are slower without kernels of our own"] if hindrance else []


def _uses_gpus(config: RunConfig) -> bool:
    return config.device not in ("auto", "cpu") or (config.device == "auto" and resources.visible_gpus() > 0)


def resume(words: list[str]) -> int:
    """The verb `resume`."""
    text, rest = command.take_subject(words, "run", lambda _: command.help_text(RESUME_USAGE, ResumeOptions))
    options, rest = command.take(rest, ResumeOptions())
    run = RunDirectory.find(text, Path(options.runs_dir))
    workload, config = read_run(run)
    # The folder may have been renamed since.
    config = resolve(replace(config, run_name=run.name), overrides=rest).config
    if config.run_name != run.name:
        raise UserError(f"run_name {shown(config.run_name)}: a run keeps its name when it goes on ({run.name})")
    config = replace(config, runs_dir=str(run.path.parent))
    wanted = hand_over.received(workload.config_class) or Wanted(config, config)
    return start(workload, wanted, options, ["resume", *words], must_resume=True)


def read_config(workload: Workload, options: TrainOptions, overrides: list[str]) -> tuple[RunConfig, list[str]]:
    """Preset under file under flags; then, where asked for, sizes by the device, and lines that tell which."""
    resolved = _resolve(workload, options, overrides)
    return workload.fit(resolved.config, resolved.explicit)


def _resolve(workload: Workload, options: TrainOptions, overrides: list[str]) -> Resolved[RunConfig]:
    return resolve(workload.preset(options.preset), config_file=options.config or None, overrides=overrides)


def read_run(run: RunDirectory) -> tuple[Workload, RunConfig]:
    """The workload and the configuration that a run was started with."""
    name, text = run.read_config()
    workload = registry.load(name)
    return workload, from_yaml(text, workload.config_class, str(run.path / "config.yaml"))


def start(
    workload: Workload,
    wanted: Wanted,
    options: LaunchOptions,
    words: list[str],
    must_resume: bool = False,
) -> int:
    """Be one rank of this run where a launcher says so, else start its ranks; returns the exit code."""
    resources.keep_memory()
    open_missing_streams()
    if environment.launched():
        rank_process.enter_rank()
        return _be_a_rank(workload, wanted, rank_process.halvings(), must_resume)
    machines = Machines.parse(options.nnodes, options.rdzv_endpoint)
    ranks, idle = ranks_here(wanted.config, options, machines)
    if machines is not None:
        _check_for_machines(wanted.config, machines)
    resources.allow_descriptors(ranks * (machines.most if machines else 1))
    config = wanted.config.for_world(ranks * (machines.most if machines else 1))
    folder = Path(config.runs_dir)
    named = bool(config.run_name)
    run = RunDirectory.named(folder, config.run_name) if named else RunDirectory.fresh(folder, _new_name(workload))
    wanted, config = wanted.named(run.name), replace(config, run_name=run.name)
    _check_same_run(run, workload, config, must_resume)
    with run.prepared(keeps=machines is not None):
        for line in idle:
            tell(line)
        if ranks == 1 and machines is None:
            return _train_alone(workload, wanted, must_resume)
        if not must_resume:
            words = [*words, "--run-name", run.name]
        secret = shared_secret(run.path) if machines else None
        with hand_over.handed_over(wanted):
            return _launch(words, ranks, machines, secret, workload, config, options)


def _new_name(workload: Workload) -> str:
    return f"{workload.name}-{datetime.now():%Y%m%d-%H%M%S}"


def ranks_here(config: RunConfig, options: LaunchOptions, machines: Machines | None) -> tuple[int, list[str]]:
    """The ranks to start on this machine, and a line where GPUs that nobody asked for by number stay idle."""
    ranks = resources.decide_ranks(options.gpus, options.ranks)
    if machines is not None or options.gpus is not None or options.ranks is not None:
        return ranks, []
    used = config.ranks_with_lanes(ranks)
    idle = f"{used} of {ranks} GPUs used: the run has no more lanes; to use all of them, {config.more_lanes(ranks)}"
    return used, [] if used == ranks else [idle]


def _launch(
    words: list[str],
    ranks: int,
    machines: Machines | None,
    secret: str | None,
    workload: Workload,
    config: RunConfig,
    options: LaunchOptions,
) -> int:
    return launcher.run_lockstep(
        words,
        ranks,
        machines=machines,
        secret=secret,
        threads=config.threads or None,
        max_restarts=options.max_restarts,
        timeout=config.timeout,
        smaller=lambda times: _how_to_halve(config, times),
        modules=("lockstep.run.session", f"lockstep.workloads.{workload.name}.build"),
    )


def _check_for_machines(config: RunConfig, machines: Machines) -> None:
    if not config.run_name:
        raise UserError("several machines work on one run: give each of them the same --run-name")
    if config.scaling == "weak" and machines.most > machines.least:
        raise UserError(
            f"--nnodes {machines.least}:{machines.most}: with --scaling weak the experiment would change with every "
            "machine that comes or goes; use --scaling strong, or a fixed number of machines"
        )


def _how_to_halve(config: RunConfig, times: int) -> str | None:
    """The flag by which a user would halve the micro-batches so often."""
    halved = config.halved(times)
    if halved is None:
        return None
    (name,) = (name for name in settings_of(type(config)) if getattr(halved, name) != getattr(config, name))
    return f"--{name.replace('_', '-')} {getattr(halved, name)}"


def _train_alone(workload: Workload, wanted: Wanted, must_resume: bool) -> int:
    """Train as the only rank, in smaller and smaller parts where memory runs out."""
    from lockstep.launch.failures import tells_of_memory

    times = 0
    while True:
        try:
            return _be_a_rank(workload, wanted, times, must_resume)
        except (MemoryError, RuntimeError) as error:
            problem = f"{type(error).__name__}: {error}"
            flag = _how_to_halve(wanted.config, times + 1)
            if not tells_of_memory(problem):
                raise
            if flag is None:
                raise RunFailed(f"out of memory, and its batches cannot be split further: {problem}") from error
        # Out here the exception no longer keeps the memory of what failed.
        times += 1
        tell(f"lockstep: {problem}; going on with micro-batches half as large ({flag})", sys.stderr)


def _check_same_run(run: RunDirectory, workload: Workload, config: RunConfig, must_resume: bool) -> None:
    """A run that is there already goes on only as the same experiment; refuse anything else before a process starts."""
    if must_resume:
        return
    if not (run.path / "config.yaml").exists():
        if any((run.path / "checkpoints").glob("step-*")):
            raise UserError(
                f"run {run.name}: has checkpoints and no config.yaml that tells of what; put it back (final/ and best/ "
                "hold copies), or choose another --run-name"
            )
        return
    stored_name, _ = run.read_config()
    if stored_name != workload.name:
        raise UserError(f"run {run.name}: is a run of {stored_name}, not of {workload.name}; choose another --run-name")
    _, stored = read_run(run)
    for name in settings_of(type(config)):
        old, new = getattr(stored, name), getattr(config, name)
        if old != new and name not in FREE_TO_CHANGE:
            raise UserError(
                f"run {run.name}: was started with {name} {shown(old)}, not {shown(new)}; choose another --run-name, "
                f"or, where network, environments and lanes stay what they are, change it with "
                f"`lockstep resume {run.path} --{name.replace('_', '-')} ...`"
            )
    if run.status().state == "finished":
        raise UserError(
            f"run {run.name}: is finished; choose another --run-name, or give it more with `lockstep resume {run.path} "
            f"--{config.length_field.replace('_', '-')} N`"
        )


def _be_a_rank(workload: Workload, wanted: Wanted, halvings: int, must_resume: bool) -> int:
    """Train as one rank of the world, in micro-batches halved so often. Called by every rank."""
    from lockstep.distributed import nccl
    from lockstep.distributed.world import describe_device, open_world
    from lockstep.run import consensus, session

    config = wanted.config if wanted.config.run_name else replace(wanted.config, run_name=_new_name(workload))
    settings = nccl.apply(nccl.detect(deterministic=config.deterministic))
    with open_world(config.device, config.timeout) as world:
        config = consensus.settle(world, workload.name, wanted.asked, config)
        config = (config.halved(halvings) or config).for_world(world.size)
        run = RunDirectory.named(Path(config.runs_dir), config.run_name)
        if must_resume and not any((run.path / "checkpoints").glob("step-*")):
            raise NoValidCheckpoint(f"{run.path}: has no checkpoint to resume from; start it with `lockstep train`")
        device = describe_device(world.device)
        plan = plan_lines(workload.name, config, world.size, device, world.carrier.words)
        lines, narrator = [*wanted.notes, *plan, *settings], workload.narrator(config, world)
        session.train(run, workload.name, config, world, workload.build, lines, narrator)
    return 0


def help_for(words: list[str], usage: str, options: type) -> str:
    """The verb's own flags, and the fields of the workload where one is named."""
    if words and words[0] in registry.names():
        return command.help_text(usage, options, registry.load(words[0]).config_class)
    return command.help_text(f"{usage}\n       with a WORKLOAD, --help lists its fields, too", options)
