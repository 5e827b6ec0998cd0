"""`lockstep export`: writes a trained model for other programs."""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import ModelOptions, Subject, TrainedModel
from lockstep.config.fields import nearest
from lockstep.errors import UserError
from lockstep.output import show, suggest
from lockstep.storage.disk import temporary_name
from lockstep.storage.manifest import step_name
from lockstep.workloads import registry
from lockstep.workloads.capabilities import Exports

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.storage.program_file import Program

USAGE = (
    "lockstep export RUN | FILE [--format safetensors | sb3 | onnx | torch | submission] [--output FILE]\n\n"
    "safetensors: the weights, with workload, step and configuration in the header; `lockstep eval FILE` reads it.\n"
    "             LSTMs are as in torch.nn.LSTMCell: names, order of the gates, two biases.\n"
    "sb3: a zip for Stable-Baselines3's PPO.load, where lockstep is installed too (needs lockstep-train[sb3]).\n"
    "onnx: a graph for any batch (needs lockstep-train[onnx]). Policies: `observation` to `logits`, `value` and\n"
    "      `action`; recurrent ones also `memory_0`..., zeros at first, to `next_memory_0`...; data: inputs to\n"
    "      `output`.\n"
    "torch: the same as a program for plain torch: torch.export.load(FILE).module()(*inputs).\n"
    "submission: a folder for a competition's platform that needs numpy only."
)
SAFETENSORS = "safetensors"
_PROGRAMS = ("onnx", "torch")
"""Formats for every model that is a function of tensors; see storage.program_file."""
_SUFFIXES = {SAFETENSORS: ".safetensors", "sb3": ".zip", "onnx": ".onnx", "torch": ".pt2"}
"""File suffix by format; a format without one is a folder."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """What is written."""

    format: str = SAFETENSORS
    """File format: safetensors, onnx, torch, or one that the workload itself writes, such as sb3 or submission."""
    output: str = ""
    """File to write; none = export/step-N in the run's directory."""


def export(arguments: list[str]) -> int:
    """The verb `export`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(USAGE, ExportOptions))
    options, fields = command.take(rest, ExportOptions())
    subject = models.find(text, options, fields)
    _check_format(subject, options.format)
    if subject.path is None:
        raise UserError(f"{subject.workload.name}: is a workload and has no weights; give a run of it")
    model = models.load(subject, options.device)
    note = ""
    weights = {name: tensor.cpu() for name, tensor in model.learner.model.state_dict().items()}
    path = _target(subject, options, model.step)
    if options.format == SAFETENSORS:
        _write(path, lambda file: _write_safetensors(subject, model, file))
    elif options.format in _own_formats(subject):
        _write(path, lambda file: _write_foreign(options.format, subject, weights, file))
    else:
        program = subject.workload.program(subject.config, model.learner)
        _write(path, lambda file: _write_program(options.format, program, file))
        note = f"; {program.note}" if program.note else ""
    where = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    show(f"{where}: {options.format}, {sum(tensor.numel() for tensor in weights.values()):,} parameters{note}")
    # Lockstep reads weights back; how other programs read their formats is in the help.
    suggest(f"lockstep eval {shlex.quote(str(where))}" if options.format == SAFETENSORS else "lockstep help export")
    return 0


def _check_format(subject: Subject, form: str) -> None:
    allowed = [SAFETENSORS, *_own_formats(subject), *_PROGRAMS]
    if form not in allowed:
        near = nearest(form, allowed)
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(f"--format {form!r}: unknown for {subject.workload.name}; {hint}allowed: {', '.join(allowed)}")


def _own_formats(subject: Subject) -> tuple[str, ...]:
    """The formats that the workload writes itself."""
    return subject.workload.exports if isinstance(subject.workload, Exports) else ()


def _target(subject: Subject, options: ExportOptions, step: int | None) -> Path:
    if options.output:
        command.check_writable("output", options.output)
        return Path(options.output)
    if subject.run is None or step is None:
        raise UserError(f"{subject.path}: does not belong to a run that could hold the export; give --output FILE")
    folder = subject.run.path / "export"
    # A run may come from somebody else: following its link would write outside its directory.
    if folder.is_symlink():
        raise UserError(f"{folder}: is a symbolic link, and a run writes only inside its directory; give --output FILE")
    return folder / (step_name(step) + _SUFFIXES.get(options.format, ""))


def _write(path: Path, write: Callable[[Path], None]) -> None:
    """Write to a temporary name, then rename, so that the file is complete or absent.

    The temporary name keeps the suffix because some writers choose their format by it.
    """
    temporary = path.with_name(temporary_name(path.stem) + path.suffix)
    try:
        path.parent.mkdir(exist_ok=True)
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: not written ({error.strerror or error}); give another --output") from error
    finally:
        # Present only after a failure; for some formats it is a folder.
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def _write_safetensors(subject: Subject, model: TrainedModel, path: Path) -> None:
    from safetensors.torch import save

    from lockstep.compute.ops import lstm_layout

    about = {"workload": subject.workload.target, "config": json.dumps(subject.config.values()), "format": "pt"}
    if model.step is not None:
        about["step"] = str(model.step)
    if model.trained_on is not None:
        about["data"] = json.dumps(dict(model.trained_on))
    if model.learner.sample is not None:
        about["sample"] = json.dumps(model.learner.sample)
    network = model.learner.model
    if lstm_layout.has_lstm(network):
        about["lstm"] = lstm_layout.ABOUT
    weights = lstm_layout.to_pytorch({name: tensor.cpu() for name, tensor in network.state_dict().items()}, network)
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in weights.items()}, about))


def _write_foreign(form: str, subject: Subject, weights: "dict[str, Tensor]", path: Path) -> None:
    with _packages_named(form):
        registry.require(subject.workload, Exports).export(form, subject.config, weights, path)


def _write_program(form: str, program: "Program", path: Path) -> None:
    from lockstep.storage import program_file

    with _packages_named(form):
        program_file.write(form, program, path)


@contextmanager
def _packages_named(form: str) -> Iterator[None]:
    """Say which extra to install if a package is missing."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"--format {form}: needs the package {error.name}; pip install 'lockstep-train[{form}]'"
        ) from error
