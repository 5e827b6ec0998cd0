"""Resolves what a user names (a run, a directory of weights, a file) to a configuration and a network."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.cli import argv as command
from lockstep.config import outside
from lockstep.config.config import AnyConfig
from lockstep.config.fields import Pattern
from lockstep.config.sources import choices
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import show, tell
from lockstep.storage.manifest import CONFIG, MANIFEST
from lockstep.storage.run_directory import RunDirectory
from lockstep.untrusted import is_file, open_regular, parse_json
from lockstep.workloads import registry
from lockstep.workloads.capabilities import Predicts, TakesOtherData, UsedWithoutData
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.world import World
    from lockstep.run.learner import Learner
    from lockstep.workloads.capabilities import Acting

TRAINED = "trained"
"""The name of the policy that uses the network; every other name is a baseline of the workload."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, if the run or directory does not say so itself."""

    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""
    workload: str = ""
    """For a file of weights alone: the workload they were trained on."""
    preset: str = "base"
    """For a file of weights alone or a workload: the preset to start from; --FIELD VALUE overrides it."""
    config: Annotated[str, Pattern(".+", "the path of a YAML file")] = ""
    """For a file of weights alone or a workload: YAML file whose fields override the preset's."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto = a GPU that is visible, else the CPU."""


@dataclass(frozen=True)
class Subject:
    """What a user named: a configuration, and where its weights are."""

    workload: Workload
    config: AnyConfig
    path: Path | None = None
    """A run, a stored directory or a file; None for a workload alone."""
    run: RunDirectory | None = None
    """The run that the weights belong to, if any."""
    data: str = ""
    """Data to use instead of the model's own; empty = a part of its own."""
    bad_files: str = ""
    """What to do with unreadable files of that data; empty = as the model's run did."""

    def check_policy(self, policy: str) -> None:
        """Raise UserError unless the policy exists, and has weights if it needs them."""
        baselines = self.workload.baselines
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
    """Steps it was trained for; None if unknown."""
    trained_on: Mapping[str, str] | None = None
    """Facts about the data it was trained on (`Learner.data_record`); None if unknown."""

    def acting(self, seed: int, explore: bool = False) -> "Acting":
        """Who plays, as workloads expect it: a function of the observation; `explore`: draws its actions."""
        player = self.learner.player(seed)

        def act(observation: Any, env: Any = None, begins: bool = False) -> "tuple[Tensor, Tensor | None]":
            """The model's action; `begins`: this is the first observation of an episode."""
            if begins:
                player.forget()
            return player.act(observation, env, explore=explore)

        return act

    def take_weights(self, path: Path) -> None:
        """Load other weights of the same run into the learner, such as those of a newer checkpoint."""
        from lockstep.compute.ops import lstm_layout
        from lockstep.storage.weights import load_weights

        weights, _ = load_weights(path)
        self.learner.model.load_state_dict(lstm_layout.from_pytorch(weights, self.learner.model))


def find(
    text: str,
    options: ModelOptions,
    fields: list[str],
    data: str = "",
    bad_files: str | None = None,
    needs: type | None = None,
    chains: str = "",
) -> Subject:
    """Find the model a user named.

    fields: arguments that set configuration fields, for a model whose configuration is not stored with it.
    data, chains, bad_files: for a model with a stored configuration, other data to use it on and how to read that; for
    one without, they are more fields of the configuration.
    needs: a capability that the stored model's workload must have; of others nothing more is asked.
    """
    given = {"data": data, "chains": chains, "bad-files": bad_files}
    own = [*fields, *(f"--{name}={value}" for name, value in given.items() if value)]
    path = _existing(text, Path(options.runs_dir))
    if registry.is_name(text):
        # A folder that happens to have a workload's name does not hide the workload, unless it holds a stored model. A
        # workload in a file of the user's has the name of that file.
        if path is not None and path.suffix != outside.FILE and _describes_itself(path):
            raise UserError(
                f"{text}: is a workload, and also a run; write {path.absolute()} for the run, or rename its folder to "
                "mean the workload"
            )
        return Subject(*_by_hand(text, options, own))
    if path is None:
        path = RunDirectory.find(text, Path(options.runs_dir), registry.names()).path
    if options.workload or options.config:
        name = options.workload or _described(path)[0]
        return Subject(*_by_hand(name, options, own), path=path, run=_run_around(path))
    name, config_text, source = _described(path)
    folder = path if path.is_dir() else path.parent
    workload = registry.load_stored(name, folder)
    if needs is not None:
        registry.require(workload, needs)
    _refuse(fields, workload, options)
    if data and not isinstance(workload, Predicts | TakesOtherData):
        raise UserError(f"--data {data}: {name} does not learn from data; leave this out")
    if bad_files and not data:
        raise UserError(
            f"--bad-files {bad_files}: applies to the files of --data, which is missing; add --data or leave this out"
        )
    if chains and not isinstance(workload, TakesOtherData):
        raise UserError(f"--chains {chains}: {name} trades no options; leave this out")
    config = workload.read_config(config_text, source, stored_in=folder)
    if (data or chains) and isinstance(workload, TakesOtherData):
        # Part of the configuration from here on: there is one place that says which data is used.
        other = {name: text for name, text in (("data", data), ("chains", chains)) if text}
        config, data = workload.with_data(config, other, _trained_on(path)), ""
    workload.check_kept(config, path)
    return Subject(workload, config, path, _run_around(path), data, bad_files or "")


def tell_about_data(subject: Subject) -> None:
    """Print what `train` would say about the data, if the workload's data needs words."""
    if isinstance(subject.workload, TakesOtherData):
        for note in subject.workload.data_notes(subject.config):
            tell(note, sys.stderr)


def place_of(subject: Subject, device: str) -> "World":
    """A world of one rank in which the subject is evaluated or watched."""
    from lockstep.distributed.world import World, choose_device
    from lockstep.run.arithmetic import settle_kernels

    world = World(device=choose_device(device, 0)).with_lanes(subject.config.effective_lanes, "fast")
    settle_kernels(world)
    return world


def load(subject: Subject, device: str) -> TrainedModel:
    """Build the subject's learner in a world of one rank and load the stored weights into it."""
    from lockstep.compute.ops import lstm_layout
    from lockstep.storage.foreign_weights import is_foreign
    from lockstep.storage.weights import load_weights, shape_difference

    assert subject.path is not None
    world = place_of(subject, device)
    learner = _learner(subject, world)

    def refuse_others(weights: Mapping[str, Any]) -> None:
        if problem := shape_difference(lstm_layout.own_names(weights, learner.model), learner.model.state_dict()):
            raise UserError(
                f"{subject.path}: does not fit the network that {subject.workload.name} builds from this "
                f"configuration: {problem}; give the --preset, --config and fields it was trained with"
            )

    if is_foreign(subject.path):
        weights, manifest = dict(subject.workload.read_foreign(subject.config, subject.path)), None
        refuse_others(weights)
    else:
        weights, manifest = load_weights(subject.path, refuse_others)
    if manifest is not None:
        _warn_of_other_data(subject, manifest.lookup("data_digest"), learner.data_digest)
    # An exported file has its LSTMs in PyTorch's layout.
    learner.model.load_state_dict(lstm_layout.from_pytorch(weights, learner.model))
    learner.model.eval()
    step = manifest.step if manifest else _step_in_header(subject.path)
    return TrainedModel(learner, world, step, _trained_on(subject.path))


def _learner(subject: Subject, world: "World") -> "Learner":
    """The learner that the weights belong to, without its data if that is not needed to use them."""
    config, workload = subject.config.replace(compile="none"), subject.workload
    sample = _sample(subject.path) if isinstance(workload, UsedWithoutData) and subject.path else None
    # A run of an earlier version does not say what its samples look like.
    if sample is None or not isinstance(workload, UsedWithoutData):
        return workload.build(config, world)
    return workload.build_without_data(config, world, sample)


def _sample(path: Path) -> Any:
    """What a sample of the data looked like that weights were trained on; None if nothing says so."""
    from lockstep.storage.weights import manifest_of

    if text := _header(path).get("sample"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise UserError(f"{path}: its header is damaged (sample: {error})") from error
    manifest = manifest_of(path)
    return manifest.lookup("sample") if manifest else None


def _step_in_header(path: Path) -> int | None:
    """The step in a file's header, if it is a plausible number: the file may come from anybody."""
    text = _header(path).get("step", "")
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def _trained_on(path: Path) -> Mapping[str, str] | None:
    """What a model says about the data it was trained on, unchecked; None if it says nothing."""
    from lockstep.storage.weights import manifest_of

    manifest = manifest_of(path)
    try:
        found = manifest.lookup("data") if manifest else parse_json(_header(path).get("data", "null").encode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _warn_of_other_data(subject: Subject, trained_on: str | None, now: str) -> None:
    """Warn if the data that a model was trained on has changed since."""
    if trained_on and now and trained_on != now:
        then = shown(trained_on)
        show(
            f"lockstep: {subject.path}: its data has changed since it was trained (digest {then} then, {now} now); "
            "names and numbers may no longer mean what it learned",
            sys.stderr,
        )


def _existing(text: str, runs_dir: Path) -> Path | None:
    """The path that is meant: as given, else below the folder of runs (`name`, `name/best`).

    If both exist, the first that holds a stored model: an unrelated folder may have the name of a run.
    """
    try:
        existing = [path for path in (Path(text), runs_dir / text) if path.exists()]
    except (OSError, ValueError):  # not a valid path, e.g. too long or with a null byte
        return None
    return next((path for path in existing if _describes_itself(path)), next(iter(existing), None))


def _describes_itself(path: Path) -> bool:
    return path.is_file() or (path / CONFIG).is_file() or (path / MANIFEST).is_file()


def _by_hand(name: str, options: ModelOptions, fields: list[str]) -> tuple[Workload, Any]:
    workload = registry.load(name)
    resolved = workload.resolve(options.preset, options.config or None, fields)
    return workload, workload.fit(resolved.config, resolved.explicit)[0]


def _refuse(fields: list[str], workload: Workload, options: ModelOptions) -> None:
    """Refuse arguments that would have no effect: a stored model keeps the configuration it was trained with."""
    schema = workload.layout(**choices(fields)).schema
    for argument in fields:
        if schema.find(argument.removeprefix("--").partition("=")[0]):
            raise UserError(
                f"{argument}: a stored model is used with the configuration it was trained with; leave this out, "
                "or describe the model yourself with --workload, --preset and fields"
            )
    if options.preset != type(options).preset:
        raise UserError(f"--preset {options.preset}: a stored model has its own configuration; leave this out")
    command.take_all(fields, options)  # raises for anything that is no flag of the verb either


def _described(path: Path) -> tuple[str, str, str]:
    """(workload, configuration as text, its source): from beside the manifest, the file's header or the run."""
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
            f"{path}: has no configuration stored with it; give a run's directory, "
            "or --workload NAME with --preset, --config FILE or fields"
        )
    return *run.read_config(), str(run.path / CONFIG)


def _run_around(path: Path) -> RunDirectory | None:
    """The run that contains a stored directory or file: a checkpoint is two levels below it."""
    folder = (path if path.is_dir() else path.parent).resolve()
    stored = (folder / MANIFEST).is_file()
    for place in (folder.parent, folder.parent.parent) if stored else (folder,):
        # A file that is there and cannot be read is an error of its own: `read_config` names it.
        if is_file(place / CONFIG):
            return RunDirectory(place)
    return None


def _header(path: Path) -> dict[str, str]:
    """The metadata in a .safetensors file's header, as `lockstep export` writes it."""
    if path.suffix != ".safetensors" or not path.is_file():
        return {}
    from lockstep.storage.tensor_file import read_header

    try:
        with open_regular(path, links=True) as file:
            return read_header(file)[1]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
