"""A checkpoint: written by all ranks together, verified before any of it is used.

`root` is the run directory; its checkpoints are `root/checkpoints/step-000000123456` and so on.
"""

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lockstep import failpoints
from lockstep.errors import LockstepError, UserError, from_json, to_json
from lockstep.storage.checkpoint_retention import CHECKPOINTS, newest_valid, prune, verify_run
from lockstep.storage.disk import sync_directory, temporary_name, write_durably
from lockstep.storage.manifest import (
    MANIFEST,
    MODEL,
    OPTIMIZER,
    STATE,
    CheckpointFailed,
    Damaged,
    FileRecord,
    Manifest,
    inspect,
    lane_file,
    read_file,
    step_name,
)
from lockstep.storage.tensor_file import encode, plain_names, stored_size, weights_hash
from lockstep.storage.weights import load_weights, read_manifest, read_tensors, refuse, save_weights
from lockstep.untrusted import parse_json

if TYPE_CHECKING:
    from lockstep.distributed.world import World

__all__ = [
    "CheckpointFailed",
    "Snapshot",
    "inspect",
    "load",
    "load_weights",
    "newest_valid",
    "prune",
    "save",
    "save_weights",
    "verify_run",
    "weights_hash",
]


@dataclass
class Snapshot:
    """Everything a run needs to continue: the global state, and the lanes that this rank owns."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    """Counters, schedules, moments: JSON values."""
    lanes: dict[int, dict[str, Tensor]] = field(default_factory=dict)


def save(
    root: Path,
    snapshot: Snapshot,
    *,
    world: "World",
    step: int,
    workload: str,
    extra: dict[str, Any],
    may_publish: Callable[[], None] = lambda: None,
) -> Path:
    """Write this step's checkpoint. Called by every rank: all return its path, or all raise the same CheckpointFailed.

    An existing checkpoint of this step is kept if it verifies. `extra` (JSON) goes into the manifest. `may_publish` is
    called on rank 0 before anything is written and again before the checkpoint is renamed into place; it raises if this
    world is no longer the run's writer, and then all ranks raise.
    """
    target = Path(root) / CHECKPOINTS / step_name(step)
    # Only rank 0 looks, and all ranks follow its answer: the stages below are collective.
    if world.agree(int(world.leads and target.is_dir() and not inspect(target))):
        return target
    # Every rank writes to the name that rank 0 drew: the names are random, so each rank's own is a different one.
    plans = world.gather_json([temporary_name(target.name), _stored_size(snapshot, world)])
    workspace = target.with_name(plans[0][0])
    needed = sum(size for _, size in plans)

    def together(stage: Callable[[], Any]) -> list[Any]:
        return _together(stage, target, workspace, world)

    # Each stage ends with an exchange of outcomes, so no rank starts a stage before all have finished the previous one.
    together(lambda: _open_workspace(workspace, needed, may_publish) if world.leads else None)
    parts = together(lambda: _write_part(workspace, snapshot, world))
    files = {name: FileRecord(**record) for part in parts for name, record in part.items()}
    manifest = Manifest(
        kind="checkpoint",
        workload=workload,
        step=step,
        torch=str(torch.__version__),
        files=files,
        lanes=world.lanes.total,
        world_size=world.size,
        extra=extra,
    )
    # The manifest is written last, so a workspace that has one is complete. The rename after it is what publishes.
    together(lambda: _complete(workspace, manifest) if world.leads else None)
    together(lambda: _publish(workspace, target, may_publish) if world.leads else None)
    return target


def load(path: Path, lanes: Iterable[int], *, expect: Mapping[str, Any] | None = None) -> Snapshot:
    """A checkpoint's global state and these lanes, on the CPU; each file is hashed before a tensor of it is used.

    `expect` holds manifest fields (including those in `extra`) that this run needs: {"workload": "snake", "lanes": 8}.
    """
    path = Path(path)
    manifest = expected_manifest(path, expect or {})
    mine = list(lanes)  # read twice below, and `lanes` may be an iterator
    unknown = [lane for lane in mine if lane not in range(manifest.lanes)]
    if unknown:
        raise UserError(f"{path}: has lanes 0 to {manifest.lanes - 1}, not {unknown[0]}; set --lanes {manifest.lanes}")
    return Snapshot(
        model=plain_names(read_tensors(path, manifest, MODEL)),
        optimizer=plain_names(read_tensors(path, manifest, OPTIMIZER)),
        state=read_state(path, manifest),
        lanes={lane: read_tensors(path, manifest, lane_file(lane)) for lane in mine},
    )


def expected_manifest(path: Path, expect: Mapping[str, Any]) -> Manifest:
    """A checkpoint's manifest; UserError if one of its fields is not what this run needs."""
    manifest = read_manifest(path)
    for name, expected in {"kind": "checkpoint", **expect}.items():
        if manifest.lookup(name) != expected:
            # .80: the stored value is untrusted and may be a megabyte long.
            found = f"{manifest.lookup(name)!r:.80}"
            way_out = f"give --lanes {found}" if name == "lanes" else "choose another --run-name"
            raise UserError(f"{path}: {name} is {found} in the checkpoint and {expected!r} in this run; {way_out}")
    return manifest


def read_state(path: Path, manifest: Manifest) -> dict[str, Any]:
    """The content of state.json, parsed from the same bytes that were hashed."""
    try:
        state = parse_json(read_file(path, STATE, manifest.files[STATE]))
    except Damaged as damage:
        refuse(path, str(damage))
    except ValueError as error:
        refuse(path, f"{STATE}: not valid JSON ({error})")
    if not isinstance(state, dict):
        refuse(path, f"{STATE}: not a JSON object")
    return state


def _together(stage: Callable[[], Any], target: Path, workspace: Path, world: "World") -> list[Any]:
    """Every rank's result of a stage; if a rank failed, remove the workspace and raise the same error on all ranks."""
    outcome: dict[str, Any]
    try:
        outcome = {"answer": stage()}
    except LockstepError as error:
        # Exceptions travel as JSON: nothing is ever unpickled.
        outcome = {"error": to_json(error)}
    except OSError as error:
        outcome = {"file": Path(error.filename or target).name, "reason": error.strerror, "free": _free_space(target)}
    outcomes = world.gather_json(outcome)
    failures = [(rank, outcome) for rank, outcome in enumerate(outcomes) if "answer" not in outcome]
    if not failures:
        return [outcome["answer"] for outcome in outcomes]
    # Every rank has left the stage by now, so nobody is still writing to the directory that is removed here.
    if world.leads:
        shutil.rmtree(workspace, ignore_errors=True)
    # No rank may start the next attempt while this one is still being removed.
    world.barrier("failed checkpoint cleared")
    # The lowest failing rank, so that all ranks raise the same line.
    rank, failure = failures[0]
    if "error" in failure:
        raise from_json(failure["error"])
    raise CheckpointFailed(
        f"{target}: not written, rank {rank} failed at {failure['file']}: {failure['reason']} "
        f"({failure['free'] / 1e6:.1f} MB free); earlier checkpoints are untouched, make room or move the run"
    )


def _free_space(target: Path) -> int:
    try:
        return shutil.disk_usage(target.parent).free
    except OSError:
        # Called while another error is reported, and must not replace it.
        return 0


def _stored_size(snapshot: Snapshot, world: "World") -> int:
    """Bytes that this rank will write: its lanes, and on rank 0 the global state as well."""
    parts = list(snapshot.lanes.values()) + ([snapshot.model, snapshot.optimizer] if world.leads else [])
    return sum(map(stored_size, parts))


def _open_workspace(workspace: Path, needed: int, may_write: Callable[[], None]) -> None:
    """Create a directory next to the checkpoints, if the disk has room for all ranks' files."""
    failpoints.reach("open")
    # Checked here too: a run whose directory was moved away must not create a new one in its place.
    may_write()
    workspace.parent.mkdir(parents=True, exist_ok=True)
    # Checked first, so that a checkpoint that cannot fit does not fill the disk before it fails.
    if _free_space(workspace) < needed:
        raise OSError(errno.ENOSPC, f"it needs {needed / 1e6:.1f} MB", str(workspace.parent))
    (workspace / lane_file(0)).parent.mkdir(parents=True)


def _write_part(workspace: Path, snapshot: Snapshot, world: "World") -> dict[str, dict[str, Any]]:
    """Write the files that this rank owns, one at a time, so that at most one is held in memory a second time."""
    assert set(snapshot.lanes) <= set(world.lanes.mine), "a snapshot holds lanes of another rank"
    records = {}
    if world.leads:
        records[MODEL] = _write(workspace / MODEL, encode(plain_names(snapshot.model)))
        records[OPTIMIZER] = _write(workspace / OPTIMIZER, encode(plain_names(snapshot.optimizer)))
        failpoints.reach("write")
        records[STATE] = _write(workspace / STATE, json.dumps(snapshot.state).encode())
    # A file for every lane, even one without state: the manifest lists all lanes, and readers expect each file.
    for lane in world.lanes.mine:
        failpoints.reach("write")
        records[lane_file(lane)] = _write(workspace / lane_file(lane), encode(snapshot.lanes.get(lane, {})))
    return {name: asdict(record) for name, record in records.items()}


def _write(path: Path, data: bytes) -> FileRecord:
    """Write a file. Its record is of the intended bytes, not of bytes read back, so that a disk error is detected."""
    write_durably(path, data)
    return FileRecord.of(data)


def _complete(workspace: Path, manifest: Manifest) -> None:
    """Add the manifest once rank 0 sees the files of all ranks."""
    failpoints.reach("manifest")
    # Ranks on other machines may have written to a disk of their own if the run directory is not shared.
    for name, record in manifest.files.items():
        path = workspace / name
        if not path.is_file() or path.stat().st_size != record.size:
            raise OSError(errno.ENOENT, "not seen by rank 0, the run directory must be shared by all ranks", name)
    write_durably(workspace / MANIFEST, manifest.render())
    # fsync of a file does not cover its directory entry; both must be on disk before the rename that publishes them.
    sync_directory((workspace / lane_file(0)).parent)
    sync_directory(workspace)


def _publish(workspace: Path, target: Path, may_publish: Callable[[], None]) -> None:
    """Rename the complete checkpoint into place."""
    failpoints.reach("publish")
    # As late as possible: another world may have taken over the run while this one was writing.
    may_publish()
    if target.exists():
        # It failed verification, or it would have been kept. Set it aside; `prune` removes it once this one verifies.
        target.rename(target.with_name(temporary_name(target.name)))
    workspace.rename(target)
    failpoints.reach("published")
    sync_directory(target.parent)
