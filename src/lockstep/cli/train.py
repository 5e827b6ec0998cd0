"""`lockstep train` and `lockstep resume`: from arguments to a run, on any number of ranks."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from lockstep.cli import argv as command
from lockstep.cli.explain import offer_explanation
from lockstep.cli.starting import LaunchOptions, read_run, start, tuner
from lockstep.compute import kernels
from lockstep.config.config import AnyConfig
from lockstep.config.fields import Alias, Pattern
from lockstep.config.sources import choices, resolve
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.launch import environment, resources
from lockstep.launch.machines import Machines
from lockstep.run import requested_run
from lockstep.run.requested_run import RequestedRun
from lockstep.run.starting_point import StepBack, refuse_other_origin, step_back
from lockstep.storage.manifest import MANIFEST
from lockstep.storage.run_directory import RunDirectory
from lockstep.untrusted import is_file
from lockstep.workloads import registry
from lockstep.workloads.requests import read_wanted
from lockstep.workloads.workload import Workload

USAGE = (
    "lockstep train WORKLOAD [--preset NAME] [--config FILE] [--FIELD VALUE | field=value]... [--gpus N | --ranks N]\n"
    "       lockstep train WORKLOAD --explain FIELD   what one setting means and may be"
)
RESUME_USAGE = "lockstep resume RUN [--from CHECKPOINT] [--FIELD VALUE | field=value]... [--gpus N | --ranks N]"

_HINT = (
    f"{'hint':12} preset base is meant for a GPU, an update can take minutes here; --preset small is meant for a CPU"
)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(LaunchOptions):
    """Which run, and where it is started."""

    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""
    from_checkpoint: Annotated[str, Alias("from")] = ""
    """Earlier checkpoint to resume from, as step-000000050000; what came later is set aside. None = the newest."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(LaunchOptions):
    """The configuration to start from."""

    preset: str = ""
    """Named configuration to start from; `lockstep list` shows them. None = base, or of a branch its source's own."""
    config: Annotated[str, Pattern(".+", "the path of a YAML file")] = ""
    """YAML file whose fields override the preset's."""


def train(arguments: list[str]) -> int:
    """The verb `train`."""
    offer_explanation(arguments)
    name, rest = command.take_subject(arguments, "workload", lambda rest: help_for(rest, USAGE, TrainOptions))
    workload = registry.load(name)
    options, rest = command.take(rest, TrainOptions())
    # A rank uses what its launcher resolved; the --config file may have changed since.
    wanted = requested_run.received(workload.read_config) or _read_wanted(workload, options, rest)
    return start(workload, wanted, options, ["train", *arguments])


def _read_wanted(workload: Workload, options: TrainOptions, overrides: list[str]) -> RequestedRun:
    wanted = read_wanted(workload, options.preset, options.config or None, overrides, tuner(workload, options))
    return replace(wanted, notes=(*wanted.notes, *hints(workload, wanted.preset, wanted.config)))


def hints(workload: Workload, preset: str, config: AnyConfig) -> list[str]:
    """Lines that tell the user what would make this run much faster here."""
    if not _uses_gpus(config):
        return [_HINT] if preset == "base" and "small" in workload.presets else []
    hindrance = kernels.missing_requirement() if config.run.device != "mps" else None
    return [f"{'hint':12} {hindrance}: runs on a GPU are slower without kernels of our own"] if hindrance else []


def _uses_gpus(config: AnyConfig) -> bool:
    return config.run.device not in ("auto", "cpu") or (config.run.device == "auto" and resources.visible_gpus() > 0)


def resume(arguments: list[str]) -> int:
    """The verb `resume`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(RESUME_USAGE, ResumeOptions))
    options, rest = command.take(rest, ResumeOptions())
    _refuse_part_of_a_run(text, Path(options.runs_dir))
    run = RunDirectory.find(text, Path(options.runs_dir))
    workload, config = read_run(run)
    # The folder may have been renamed since the run was started.
    stored = config.replace(run_name=run.name)
    resolved = resolve(stored, overrides=rest)
    if resolved.alternatives:
        raise UserError("autotune: a run that exists keeps its sizes; leave it out")
    config = resolved.config
    refuse_other_origin(config, stored)
    if config.run.run_name != run.name:
        raise UserError(
            f"run_name {shown(config.run.run_name)}: a resumed run keeps its name, {run.name}; leave it out"
        )
    config = config.replace(runs_dir=str(run.path.parent))
    wanted = requested_run.received(workload.read_config)
    if wanted is None:
        wanted = RequestedRun(config, config, step_back=_step_back(run, options))
    return start(workload, wanted, options, ["resume", *arguments], must_resume=True)


def _refuse_part_of_a_run(text: str, runs_dir: Path) -> None:
    """Raise UserError if a name is that of something stored in a run: a checkpoint, or the best weights."""
    for path in (Path(text), runs_dir / text):
        if not is_file(path / MANIFEST):
            continue
        path = path.resolve()
        if path.parent.name == "checkpoints":
            raise UserError(
                f"{path}: is a checkpoint; resume its run from it with "
                f"`lockstep resume {path.parent.parent} --from {path.name}`"
            )
        raise UserError(
            f"{path}: holds only weights, and a resume needs more; continue its run with "
            f"`lockstep resume {path.parent}`, or start a new one from them with --load-model {path}"
        )


def _step_back(run: RunDirectory, options: ResumeOptions) -> StepBack | None:
    if not options.from_checkpoint:
        return None
    # After a failure other launchers repeat the command, and each machine has a launcher of its own: the run would go
    # back again and again.
    if environment.launched() or Machines.parse(options.nnodes, options.rdzv_endpoint) is not None:
        raise UserError(
            f"--from {shown(options.from_checkpoint)}: one launcher of Lockstep on one machine can go back; with "
            f"torchrun or several machines use `train ... --branch-from {run.path / 'checkpoints' / 'step-...'}`"
        )
    return step_back(run, options.from_checkpoint)


def help_for(arguments: list[str], usage: str, options: type) -> str:
    """Help on the verb's own flags and, if a workload is named, on the workload's fields."""
    if arguments and registry.is_name(arguments[0]):
        return command.help_text(usage, options, registry.load(arguments[0]).layout(**choices(arguments[1:])).schema)
    return command.help_text(f"{usage}\n       with a WORKLOAD, --help also lists its fields", options)
