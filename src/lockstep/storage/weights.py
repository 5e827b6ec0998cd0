"""Weights alone, as in best/ and final/, and reading the tensors of any stored model."""

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from lockstep import failpoints
from lockstep.config.values import shown
from lockstep.errors import NoValidCheckpoint, UserError
from lockstep.storage import manifest as manifests
from lockstep.storage.checkpoint_retention import WEIGHTS, newest_valid
from lockstep.storage.disk import TEMPORARY, replace_directory, sync_directory, temporary_name, write_durably
from lockstep.storage.manifest import (
    CONFIG,
    MADE_WITH,
    MANIFEST,
    MODEL,
    CheckpointFailed,
    Damaged,
    FileRecord,
    Manifest,
)
from lockstep.storage.tensor_file import TensorSpec, decode, encode, plain_names, read_header
from lockstep.untrusted import open_regular

Fits = Callable[[Mapping[str, TensorSpec]], None]
"""Raises if weights of these shapes and dtypes do not fit."""
_log = logging.getLogger(__name__)


def save_weights(
    directory: Path, model: Mapping[str, Tensor], *, config_text: str, workload: str, step: int, extra: dict[str, Any]
) -> Path:
    """Replace best/ or final/ atomically. Rank 0 only; after a CheckpointFailed the old weights are still there."""
    directory = Path(directory)
    workspace = directory.with_name(temporary_name(directory.name))
    contents = {MODEL: encode(plain_names(model)), CONFIG: config_text.encode()}
    records = {name: FileRecord.of(data) for name, data in contents.items()}
    manifest = Manifest("weights", workload, step, str(torch.__version__), records, extra=extra)
    try:
        # Reached three times: before anything is written, when all is written, and after the rename.
        failpoints.reach(directory.name)
        workspace.mkdir()
        for name, data in {**contents, MANIFEST: manifest.render()}.items():
            write_durably(workspace / name, data)
        sync_directory(workspace)
        failpoints.reach(directory.name)
        replace_directory(workspace, directory)
        failpoints.reach(directory.name)
    except OSError as error:
        shutil.rmtree(workspace, ignore_errors=True)
        file = Path(error.filename or directory).name
        raise CheckpointFailed(
            f"{directory}: not written, {file}: {error.strerror}; make room or move the run"
        ) from error
    # Leftovers of killed writes. They go last, when the new weights are in place.
    for leftover in directory.parent.glob(f"{TEMPORARY}{directory.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    return directory


def manifest_of(path: Path) -> Manifest | None:
    """The manifest of the weights that `load_weights` would load; None for a file without one next to it."""
    if path.is_dir():
        return read_manifest(_stored_model(path))
    return read_manifest(path.parent) if (path.parent / MANIFEST).exists() else None


def load_weights(path: Path, fits: Fits = lambda _: None) -> tuple[dict[str, Tensor], Manifest | None]:
    """The weights at a path, verified, on the CPU, and their manifest (None for a file without one next to it).

    The path is a run (final/, else best/, else the newest valid checkpoint), one of its stored directories, or a file.
    `fits` raises if the weights cannot be used; it is called with their shapes and dtypes before any are loaded.
    """
    path = Path(path)
    if path.is_dir():
        directory = _stored_model(path)
        return _load_listed(directory, read_manifest(directory), MODEL, fits)
    if not path.is_file():
        raise UserError(f"{path}: no such run, checkpoint or .safetensors file (`lockstep runs` lists the runs)")
    if path.suffix != ".safetensors":
        raise UserError(f"{path}: not a .safetensors file; files of other formats are never opened")
    # A file of a stored directory is verified like the directory itself.
    if (path.parent / MANIFEST).exists():
        manifest = read_manifest(path.parent)
        if path.name in manifest.files:
            return _load_listed(path.parent, manifest, path.name, fits)
    try:
        # The user gave this path, so a link is followed.
        with open_regular(path, links=True) as file:
            fits(plain_names(read_header(file)[0]))
            file.seek(0)
            return plain_names(decode(file.read())), None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def stored_config(path: Path) -> str:
    """The configuration that the model at a path was made with, as YAML; empty if none is stored with it."""
    path = Path(path)
    folder = _stored_model(path) if path.is_dir() else path.parent
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        if CONFIG not in manifest.files:
            made_with = manifest.lookup(MADE_WITH)
            return made_with if isinstance(made_with, str) else ""
        try:
            return manifests.read_file(folder, CONFIG, manifest.files[CONFIG]).decode()
        except (Damaged, UnicodeDecodeError) as damage:
            refuse(folder, str(damage))
    if path.suffix != ".safetensors":
        return ""
    with open_regular(path, links=True) as file:
        return read_header(file)[1].get("config", "")


def shape_difference(stored: Mapping[str, Tensor | TensorSpec], needed: Mapping[str, Tensor]) -> str:
    """The first difference between stored weights and a network's, as text; empty if they fit."""
    for name in sorted(stored.keys() | needed.keys()):
        have, want = stored.get(name), needed.get(name)
        if have is None or want is None or tuple(have.shape) != tuple(want.shape):
            file_has, network_has = ("missing" if tensor is None else tuple(tensor.shape) for tensor in (have, want))
            return f"tensor {shown(name)} is {file_has} in the file and {network_has} in the network"
        # Another floating-point precision is converted on loading; integers cannot be weights.
        if have.dtype.is_floating_point != want.dtype.is_floating_point:
            return f"tensor {shown(name)} is {have.dtype} in the file and {want.dtype} in the network"
    return ""


def _load_listed(directory: Path, manifest: Manifest, name: str, fits: Fits) -> tuple[dict[str, Tensor], Manifest]:
    try:
        # The header alone first: a file that cannot be used is neither hashed nor loaded.
        with manifests.open_listed(directory, name, manifest.files[name]) as file:
            fits(plain_names(read_header(file)[0]))
    except Damaged as damage:
        refuse(directory, str(damage))
    return plain_names(read_tensors(directory, manifest, name)), manifest


def _stored_model(path: Path) -> Path:
    """The directory whose model a path means: the path itself, or one inside the run."""
    if (path / MANIFEST).exists():
        return path
    for name in WEIGHTS:
        # Refused instead of skipped: quietly taking other weights than the user sees there would mislead.
        if (path / name).is_symlink():
            refuse(path / name, "is a link, and links are not followed")
        if (path / name).is_dir():
            return path / name
    newest = newest_valid(path, _log.warning)
    if newest is None:
        raise NoValidCheckpoint(f"{path}: has no weights yet (no final/, no best/, no checkpoint in checkpoints/)")
    return newest


def read_manifest(path: Path) -> Manifest:
    """A stored directory's manifest; UserError for another format, NoValidCheckpoint for a damaged one."""
    if not path.is_dir():
        raise UserError(f"{path}: no such checkpoint")
    try:
        return manifests.read_manifest(path)
    except manifests.OtherFormat as other:
        raise UserError(f"{path}: {other}; use the version that wrote it") from other
    except Damaged as damage:
        refuse(path, str(damage))


def read_tensors(path: Path, manifest: Manifest, name: str) -> dict[str, Tensor]:
    """The tensors of one file listed in the manifest, decoded from the same bytes that were hashed."""
    try:
        return decode(manifests.read_file(path, name, manifest.files[name]))
    except Damaged as damage:
        refuse(path, str(damage))
    except ValueError as error:
        refuse(path, f"{name}: {error}")


def refuse(path: Path, problem: str) -> NoReturn:
    """Raise NoValidCheckpoint, saying what is wrong with a stored directory and how to find an intact one."""
    raise NoValidCheckpoint(f"{path}: {problem}; `lockstep verify RUN` names the intact ones")
