"""Where a run starts, as a user names it: an earlier checkpoint of its own, another run, or a model. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lockstep.config.config import AnyConfig
from lockstep.config.run_settings import ORIGIN, RunSettings
from lockstep.config.sources import given
from lockstep.config.values import shown
from lockstep.errors import NoValidCheckpoint, UserError
from lockstep.output import tell
from lockstep.storage.checkpoint_retention import chosen_valid, newest_valid, steps_on_disk
from lockstep.storage.manifest import MADE_WITH, MANIFEST, Damaged, Manifest, read_manifest, step_name, step_of
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.set_aside import later_than
from lockstep.untrusted import is_file

_LONGEST_STEP = 18
"""Digits."""


@dataclass(frozen=True)
class StepBack:
    """A resume from an earlier checkpoint (`--from`): the run leaves what came later."""

    checkpoint: str
    """Its name."""
    aside: str
    """The folder below aside/ for what came later; if it exists, the run has already gone back."""


def step_back(run: RunDirectory, wanted: str) -> StepBack | None:
    """Find the checkpoint that `--from` names and see that it verifies; None if nothing of the run is later."""
    name = step_name(int(wanted)) if wanted.isdecimal() and len(wanted) <= _LONGEST_STEP else Path(wanted).name
    there = {path.name: path for path in steps_on_disk(run.path)}
    if name not in there:
        known = f"it has {', '.join(there)}" if there else "it has none"
        raise UserError(f"--from {shown(wanted)}: run {run.name} has no such checkpoint; {known}")
    chosen_valid(there[name])
    if not later_than(run.path, step_of(name) or 0):
        return None
    return StepBack(name, f"{datetime.now():%Y%m%d-%H%M%S}-after-{name}")


@dataclass(frozen=True)
class BranchSource:
    """What a branch starts from, and the configuration that was made with."""

    path: Path
    """As the user named it, absolute: a run, whose newest checkpoint is taken, or a checkpoint."""
    workload: str
    config_text: str

    @staticmethod
    def find(text: str, runs_dir: str) -> "BranchSource":
        """The run or checkpoint that `--branch-from` names."""
        path = _existing(text, runs_dir)
        if path is None or not path.is_dir():
            raise UserError(
                f"branch_from {shown(text)}: neither a run, nor one in {runs_dir}, nor a checkpoint "
                "(RUN/checkpoints/step-...); `lockstep runs` lists the runs"
            )
        checkpoint = path if is_checkpoint(path) else _newest(path)
        manifest = _manifest(checkpoint)
        if manifest.kind != "checkpoint":
            raise UserError(
                f"branch_from {shown(text)}: holds only weights; give a checkpoint (RUN/checkpoints/step-...), or "
                "start with these weights by --load-model"
            )
        stored = manifest.lookup(MADE_WITH)
        # Early checkpoints do not hold their configuration: theirs is the run's.
        config = stored if isinstance(stored, str) else RunDirectory(checkpoint.parents[1]).read_config()[1]
        return BranchSource(path, manifest.workload, config)


def is_checkpoint(path: Path) -> bool:
    """Whether a directory is a checkpoint and not a whole run."""
    return is_file(path / MANIFEST)


def with_absolute_model(config: AnyConfig) -> AnyConfig:
    """The configuration with `load_model` as an absolute path; UserError if there is nothing."""
    text = config.run.load_model
    if not text:
        return config
    place = _existing(text, config.run.runs_dir)
    if place is None:
        raise UserError(
            f"load_model {shown(text)}: no such run, checkpoint or file, here or in {config.run.runs_dir}; "
            "`lockstep runs` lists the runs"
        )
    return config.replace(load_model=str(place))


def absolute_origin(words: Sequence[str], file: str | Path | None) -> list[str]:
    """Words that name the origin in `words` or a file by its absolute path, for runs in another folder."""
    named = given(words, file, (*ORIGIN, "runs_dir"))
    runs_dir = named.get("runs_dir", RunSettings.runs_dir)
    found = {name: _existing(named[name], runs_dir) for name in sorted(ORIGIN) if named.get(name)}
    return [f"{name}={path}" for name, path in found.items() if path is not None]


def refuse_other_origin(config: AnyConfig, stored: AnyConfig) -> None:
    """UserError if a resumed run is told to start elsewhere than the stored configuration says."""
    for name in sorted(ORIGIN & config.differences(stored).keys()):
        raise UserError(
            f"{name} {shown(config.values()[name])}: where a new run starts; a resumed one has checkpoints of its own: "
            "leave it out, or use `lockstep train`"
        )


def _existing(text: str, runs_dir: str) -> Path | None:
    """The absolute path that a text means: as given, else below the folder of runs; a path that exists wins."""
    candidates = (Path(text).expanduser(), Path(runs_dir) / text)
    try:
        return next((path.absolute() for path in candidates if path.exists()), None)
    except (OSError, ValueError):  # not a valid path, e.g. too long or with a null byte
        return None


def _newest(run: Path) -> Path:
    newest = newest_valid(run, tell)
    if newest is None:
        raise NoValidCheckpoint(f"{run}: has no checkpoint to branch from (checkpoints/ is empty or missing)")
    return newest


def _manifest(checkpoint: Path) -> Manifest:
    try:
        return read_manifest(checkpoint)
    except Damaged as damage:
        raise NoValidCheckpoint(f"{checkpoint}: {damage}; `lockstep verify RUN` names the intact ones") from damage
