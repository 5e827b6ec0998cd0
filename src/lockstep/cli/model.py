"""From what a user names (a run, a directory of weights, a file) to a configuration and a network."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.cli import argv as command
from lockstep.config.fields import Pattern
from lockstep.config.fields import find as find_field
from lockstep.config.run_config import RunConfig
from lockstep.config.sources import from_yaml, resolve
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.storage.manifest import CONFIG, MANIFEST
from lockstep.storage.run_directory import RunDirectory
from lockstep.untrusted import open_regular
from lockstep.workloads import registry
from lockstep.workloads.registry import Workload

if TYPE_CHECKING:
    from lockstep.distributed.world import World
    from lockstep.run.learner import Learner

TRAINED = "trained"
"""The policy that is the network; every other one is a baseline of the workload."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, where a run or a directory does not tell."""

    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""
    workload: str = ""
    """For a file of weights alone: what they were trained on."""
    preset: str = "base"
    """For a file of weights alone or a workload: the preset to start from; --FIELD VALUE goes over it."""
    config: Annotated[str, Pattern(".+", "the path of a YAML file")] = ""
    """For a file of weights alone or a workload: YAML file whose fields override the preset's."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto = a GPU that is visible, else the CPU."""


@dataclass(frozen=True)
class Subject:
    """What a user named: a configuration, and where its weights lie."""

    workload: Workload
    config: RunConfig
    path: Path | None = None
    """A run, a stored directory or a file; None for a workload alone."""
    run: RunDirectory | None = None
    """The run that the weights belong to, if any."""
    data: str = ""
    """Other data than the model's own to be used on; none = a part of its own."""
    bad_files: str = ""
    """What to do with files of that data which cannot be read; none = as with the model's own."""

    def check_policy(self, policy: str) -> None:
        """See that there is such a policy, and weights where it needs them."""
        baselines = getattr(self.workload.module, "BASELINES", ())
        if policy != TRAINED and policy not in baselines:
            raise UserError(f"--policy {policy!r}: unknown; allowed: {', '.join((TRAINED, *baselines))}")
        if policy == TRAINED and self.path is None:
            hint = f", or --policy {' or '.join(baselines)}" if baselines else ""
            raise UserError(f"{self.workload.name}: is a workload and has no weights; give a run of it{hint}")


@dataclass(frozen=True)
class TrainedModel:
    """A learner that holds stored weights."""

    learner: "Learner"
    world: "World"
    step: int | None
    """Steps it was trained for; None where nobody knows."""


def find(text: str, options: ModelOptions, fields: list[str], data: str = "", bad_files: str | None = None) -> Subject:
    """The model a user named; `fields` are the words that set fields of a configuration which no file tells.

    `data`, `bad_files`: what a stored model that describes itself is to be used on, and how that is read; otherwise
    they are two of those fields.
    """
    given = {"data": data, "bad-files": bad_files}
    own = [*fields, *(f"--{name}={value}" for name, value in given.items() if value)]
    path = _existing(text, Path(options.runs_dir))
    name = text.replace("-", "_")
    if name in registry.names() and (path is None or not _describes_itself(path)):
        return Subject(*_by_hand(name, options, own))
    if path is None:
        path = RunDirectory.find(text, Path(options.runs_dir), registry.names()).path
    if options.workload or options.config:
        name = options.workload or _described(path)[0]
        return Subject(*_by_hand(name, options, own), path=path, run=_run_around(path))
    name, config_text, source = _described(path)
    workload = registry.load(name)
    _refuse(fields, workload, options)
    if data and not workload.predicts:
        raise UserError(f"--data {data}: a stored model of {name} is used with what it was trained on; leave this out")
    if bad_files and not data:
        raise UserError(
            f"--bad-files {bad_files}: is about the files of --data, which is missing; leave it out or add that"
        )
    config = from_yaml(config_text, workload.config_class, source)
    workload.check_kept(config, path)
    return Subject(workload, config, path, _run_around(path), data, bad_files or "")


def place_of(subject: Subject, device: str) -> "World":
    """A world of one in which the subject is evaluated or watched."""
    from lockstep.distributed.world import World, choose_device
    from lockstep.run.session import settle_kernels

    world = World(device=choose_device(device, 0)).with_lanes(subject.config.effective_lanes, "fast")
    settle_kernels(world)
    return world


def load(subject: Subject, device: str) -> TrainedModel:
    """Build the subject's learner in a world of one and give it the stored weights."""
    from lockstep.run.learner import data_digest
    from lockstep.storage.weights import load_weights, misfit

    assert subject.path is not None
    world = place_of(subject, device)
    learner = subject.workload.build(replace(subject.config, compile="none"), world)

    def refuse_others(weights: Mapping[str, Any]) -> None:
        if problem := misfit(weights, learner.model.state_dict()):
            raise UserError(
                f"{subject.path}: does not fit the network that {subject.workload.name} builds from this "
                f"configuration: {problem}; give the --preset, --config and fields that it was trained with"
            )

    if subject.path.suffix == getattr(subject.workload.module, "FOREIGN", None):
        weights, manifest = subject.workload.offer("read_foreign")(subject.config, subject.path), None
        refuse_others(weights)
    else:
        weights, manifest = load_weights(subject.path, refuse_others)
    if manifest is not None:
        _warn_of_other_data(subject, manifest.lookup("data_digest"), data_digest(learner))
    learner.model.load_state_dict(weights)
    learner.model.eval()
    return TrainedModel(learner, world, manifest.step if manifest else _step_told(subject.path))


def _step_told(path: Path) -> int | None:
    """The step in a file's own header, where there is one that a run can have."""
    text = _header(path).get("step", "")
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def _warn_of_other_data(subject: Subject, trained_on: str | None, now: str) -> None:
    """Say so where the data that a model was trained on has changed since."""
    if trained_on and now and trained_on != now:
        then = shown(trained_on)
        print(
            f"lockstep: {subject.path}: its data has changed since it was trained (digest {then} then, {now} now); "
            "names and numbers may mean others than those it learned",
            file=sys.stderr,
            flush=True,
        )


def _existing(text: str, runs_dir: Path) -> Path | None:
    """The path that is meant: as it stands, else below the folder of runs (`name`, `name/best`).

    Where both are there, the first that says what it is: a folder may happen to be called as a run is.
    """
    try:
        there = [path for path in (Path(text), runs_dir / text) if path.exists()]
    except (OSError, ValueError):  # a name that cannot be one
        return None
    return next((path for path in there if _describes_itself(path)), next(iter(there), None))


def _describes_itself(path: Path) -> bool:
    return path.is_file() or (path / CONFIG).is_file() or (path / MANIFEST).is_file()


def _by_hand(name: str, options: ModelOptions, fields: list[str]) -> tuple[Workload, Any]:
    workload = registry.load(name)
    resolved = resolve(workload.preset(options.preset), config_file=options.config or None, overrides=fields)
    return workload, workload.fit(resolved.config, resolved.explicit)[0]


def _refuse(fields: list[str], workload: Workload, options: ModelOptions) -> None:
    """Let no words pass that nobody would read: a stored model plays the game that it was trained on."""
    for word in fields:
        if find_field(workload.config_class, word.removeprefix("--").partition("=")[0]):
            raise UserError(
                f"{word}: a stored model is used with the configuration that it was trained with; leave this out, "
                "or describe the model anew with --workload, --preset and fields"
            )
    if options.preset != type(options).preset:
        raise UserError(f"--preset {options.preset}: a stored model has its own configuration; leave this out")
    command.take_all(fields, options)


def _described(path: Path) -> tuple[str, str, str]:
    """The workload, the configuration's text and where that stands: in the manifest's company, the file or the run."""
    from lockstep.storage import manifest as manifests
    from lockstep.storage import weights

    folder = path if path.is_dir() else path.parent
    if (folder / MANIFEST).is_file():
        manifest = weights.read_manifest(folder)
        if CONFIG in manifest.files:
            try:
                text = manifests.read_file(folder, CONFIG, manifest.files[CONFIG]).decode()
            except (manifests.Damaged, UnicodeDecodeError) as damage:
                weights.refuse(folder, str(damage))
            return manifest.workload, text, str(folder / CONFIG)
    header = _header(path)
    if "workload" in header and "config" in header:
        return header["workload"], header["config"], str(path)
    run = _run_around(path)
    if run is None:
        raise UserError(
            f"{path}: no configuration beside it says what it is; give a run's directory, "
            "or --workload NAME with --preset, --config FILE or fields"
        )
    return *run.read_config(), str(run.path / CONFIG)


def _run_around(path: Path) -> RunDirectory | None:
    """The run that a stored directory or file lies in: a checkpoint is two floors below it."""
    folder = (path if path.is_dir() else path.parent).resolve()
    stored = (folder / MANIFEST).is_file()
    for place in (folder, folder.parent, folder.parent.parent) if stored else (folder,):
        run = RunDirectory(place)
        try:
            run.read_config()
        except UserError:
            continue
        return run
    return None


def _header(path: Path) -> dict[str, str]:
    """What a .safetensors file says of itself, as `lockstep export` writes it."""
    if path.suffix != ".safetensors" or not path.is_file():
        return {}
    from lockstep.storage.tensor_file import read_header

    try:
        with open_regular(path, links=True) as file:
            return read_header(file)[1]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
