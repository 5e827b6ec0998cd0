"""Weights alone, as best/ and final/ hold them, and the reading of any stored model's tensors."""

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
from lockstep.storage.manifest import CONFIG, MANIFEST, MODEL, CheckpointFailed, Damaged, FileRecord, Manifest
from lockstep.storage.tensor_file import Form, decode, encode, plain_names, read_header
from lockstep.untrusted import open_regular

Fits = Callable[[Mapping[str, Form]], None]
"""Raises where weights of these forms are of no use."""
_log = logging.getLogger(__name__)


def save_weights(
    directory: Path, model: Mapping[str, Tensor], *, config_text: str, workload: str, step: int, extra: dict[str, Any]
) -> Path:
    """Replace best/ or final/ in one move. Rank 0 only; raises CheckpointFailed, the old weights then still stand."""
    directory = Path(directory)
    workspace = directory.with_name(temporary_name(directory.name))
    contents = {MODEL: encode(plain_names(model)), CONFIG: config_text.encode()}
    records = {name: FileRecord.of(data) for name, data in contents.items()}
    manifest = Manifest("weights", workload, step, str(torch.__version__), records, extra=extra)
    try:
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
    for dead in directory.parent.glob(f"{TEMPORARY}{directory.name}-*"):
        shutil.rmtree(dead, ignore_errors=True)
    return directory


def load_weights(path: Path, fits: Fits = lambda _: None) -> tuple[dict[str, Tensor], Manifest | None]:
    """The weights at a path, verified, on the CPU, and their manifest (None for a file with none beside it).

    The path is a run (final/, else best/, else the newest valid checkpoint), one of its stored directories, or a file.
    `fits` raises where weights of these forms are of no use: it is asked before any of them is loaded.
    """
    path = Path(path)
    if path.is_dir():
        directory = _stored_model(path)
        return _load_listed(directory, read_manifest(directory), MODEL, fits)
    if not path.is_file():
        raise UserError(f"{path}: no such run, checkpoint or .safetensors file (`lockstep runs` lists the runs)")
    if path.suffix != ".safetensors":
        raise UserError(f"{path}: only .safetensors files are read, and files of other kinds never opened")
    if (path.parent / MANIFEST).exists():
        manifest = read_manifest(path.parent)
        if path.name in manifest.files:
            return _load_listed(path.parent, manifest, path.name, fits)
    try:
        with open_regular(path, links=True) as file:
            fits(plain_names(read_header(file)[0]))
            file.seek(0)
            return plain_names(decode(file.read())), None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def misfit(stored: Mapping[str, Tensor | Form], needed: Mapping[str, Tensor]) -> str:
    """The first difference between stored weights and a network's, in words; empty where there is none."""
    for name in sorted(stored.keys() | needed.keys()):
        have, want = stored.get(name), needed.get(name)
        if have is None or want is None or tuple(have.shape) != tuple(want.shape):
            there, here = ("nothing" if tensor is None else tuple(tensor.shape) for tensor in (have, want))
            return f"tensor {shown(name)} is {there} there and {here} here"
        # Weights of another precision are weights; whole numbers are none.
        if have.dtype.is_floating_point != want.dtype.is_floating_point:
            return f"tensor {shown(name)} is of {have.dtype} there and of {want.dtype} here"
    return ""


def _load_listed(directory: Path, manifest: Manifest, name: str, fits: Fits) -> tuple[dict[str, Tensor], Manifest]:
    try:
        with manifests.open_listed(directory, name, manifest.files[name]) as file:
            fits(plain_names(read_header(file)[0]))
    except Damaged as damage:
        refuse(directory, str(damage))
    return plain_names(read_tensors(directory, manifest, name)), manifest


def _stored_model(path: Path) -> Path:
    """The directory inside a run, or the path itself, whose model is meant."""
    if (path / MANIFEST).exists():
        return path
    for name in WEIGHTS:
        if (path / name).is_symlink():
            refuse(path / name, "is a link, and nothing behind it is used")
        if (path / name).is_dir():
            return path / name
    newest = newest_valid(path, _log.warning)
    if newest is None:
        raise NoValidCheckpoint(f"{path}: holds no weights yet (no final/, best/ or checkpoints/ with one in it)")
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
    """The tensors of one file that the manifest lists, from the very bytes that were hashed."""
    try:
        return decode(manifests.read_file(path, name, manifest.files[name]))
    except Damaged as damage:
        refuse(path, str(damage))
    except ValueError as error:
        refuse(path, f"{name}: {error}")


def refuse(path: Path, problem: str) -> NoReturn:
    """Say what is wrong with a stored directory and where to look for another."""
    raise NoValidCheckpoint(f"{path}: {problem}; `lockstep verify RUN` names the intact ones")
