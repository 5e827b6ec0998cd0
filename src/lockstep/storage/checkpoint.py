"""A checkpoint: written by every rank together, verified before any of it is used.

`root` is the run's directory, where the checkpoints lie in `checkpoints/step-000000123456`.
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
from lockstep.errors import LockstepError, UserError, error_of
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
    """Everything a run needs to go on: what is the world's, and the lanes that this rank owns."""

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

    A checkpoint of this step that verifies is kept as it is. `extra` (JSON) goes into the manifest. `may_publish` is
    asked on rank 0 before anything is written and before the checkpoint gets its name; it raises where this world is
    no longer the run's writer, and then all ranks do.
    """
    target = Path(root) / CHECKPOINTS / step_name(step)
    if world.agree(int(world.leads and target.is_dir() and not inspect(target))):
        return target
    plans = world.gather_json([temporary_name(target.name), _stored_size(snapshot, world)])
    workspace = target.with_name(plans[0][0])
    needed = sum(size for _, size in plans)

    def together(stage: Callable[[], Any]) -> list[Any]:
        return _together(stage, target, workspace, world)

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
    together(lambda: _complete(workspace, manifest) if world.leads else None)
    together(lambda: _publish(workspace, target, may_publish) if world.leads else None)
    return target


def load(path: Path, lanes: Iterable[int], *, expect: Mapping[str, Any] | None = None) -> Snapshot:
    """A checkpoint's global part and these lanes, on the CPU; each file is hashed before a tensor of it is used.

    `expect` holds manifest fields (`extra`'s too) that this run needs, such as {"workload": "snake", "lanes": 8}.
    """
    path = Path(path)
    manifest = expected_manifest(path, expect or {})
    mine = list(lanes)
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
    """A checkpoint's manifest; UserError where a field of it is not what this run needs."""
    manifest = read_manifest(path)
    for name, wanted in {"kind": "checkpoint", **expect}.items():
        if manifest.lookup(name) != wanted:
            raise UserError(
                f"{path}: {name} is {manifest.lookup(name)!r:.80} there and {wanted!r} in this run; "
                "resume with the run's own configuration, or choose another --run-name"
            )
    return manifest


def read_state(path: Path, manifest: Manifest) -> dict[str, Any]:
    """What state.json says, from the very bytes that were hashed."""
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
    """Every rank's answer to a stage; where a disk refused one, the workspace goes and all raise the same line."""
    outcome: dict[str, Any]
    try:
        outcome = {"answer": stage()}
    except LockstepError as error:
        outcome = {"error": [str(error), error.exit_code]}
    except OSError as error:
        outcome = {"file": Path(error.filename or target).name, "reason": error.strerror, "free": _free_space(target)}
    outcomes = world.gather_json(outcome)
    failures = [(rank, one) for rank, one in enumerate(outcomes) if "answer" not in one]
    if not failures:
        return [one["answer"] for one in outcomes]
    # Every rank has left the stage by now, so nobody writes into what is removed here.
    if world.leads:
        shutil.rmtree(workspace, ignore_errors=True)
    world.barrier("failed checkpoint cleared")
    rank, failure = failures[0]
    if "error" in failure:
        raise error_of(*failure["error"])
    raise CheckpointFailed(
        f"{target}: not written, rank {rank} failed at {failure['file']}: {failure['reason']} "
        f"({failure['free'] / 1e6:.1f} MB free); earlier checkpoints are untouched, make room or move the run"
    )


def _free_space(target: Path) -> int:
    try:
        return shutil.disk_usage(target.parent).free
    except OSError:
        return 0


def _stored_size(snapshot: Snapshot, world: "World") -> int:
    """Bytes that this rank will write."""
    parts = list(snapshot.lanes.values()) + ([snapshot.model, snapshot.optimizer] if world.leads else [])
    return sum(map(stored_size, parts))


def _open_workspace(workspace: Path, needed: int, may_write: Callable[[], None]) -> None:
    """A new directory beside the checkpoints, where there is room for all ranks' files."""
    failpoints.reach("open")
    # Asked here too: a run whose directory was moved away must not make another in its place.
    may_write()
    workspace.parent.mkdir(parents=True, exist_ok=True)
    if _free_space(workspace) < needed:
        raise OSError(errno.ENOSPC, f"it needs {needed / 1e6:.1f} MB", str(workspace.parent))
    (workspace / lane_file(0)).parent.mkdir(parents=True)


def _write_part(workspace: Path, snapshot: Snapshot, world: "World") -> dict[str, dict[str, Any]]:
    """The files that this rank owns, one by one, so that one at most is in memory a second time."""
    assert set(snapshot.lanes) <= set(world.lanes.mine), "a snapshot holds lanes of another rank"
    records = {}
    if world.leads:
        records[MODEL] = _write(workspace / MODEL, encode(plain_names(snapshot.model)))
        records[OPTIMIZER] = _write(workspace / OPTIMIZER, encode(plain_names(snapshot.optimizer)))
        failpoints.reach("write")
        records[STATE] = _write(workspace / STATE, json.dumps(snapshot.state).encode())
    for lane in world.lanes.mine:
        failpoints.reach("write")
        records[lane_file(lane)] = _write(workspace / lane_file(lane), encode(snapshot.lanes.get(lane, {})))
    return {name: asdict(record) for name, record in records.items()}


def _write(path: Path, data: bytes) -> FileRecord:
    """The record is of the bytes meant, not of bytes read back: a disk that keeps others is found out."""
    write_durably(path, data)
    return FileRecord.of(data)


def _complete(workspace: Path, manifest: Manifest) -> None:
    """Add the manifest once the files of all ranks are seen from here."""
    failpoints.reach("manifest")
    for name, record in manifest.files.items():
        path = workspace / name
        if not path.is_file() or path.stat().st_size != record.size:
            raise OSError(errno.ENOENT, "not seen by rank 0, the run directory must be shared by all ranks", name)
    write_durably(workspace / MANIFEST, manifest.render())
    sync_directory((workspace / lane_file(0)).parent)
    sync_directory(workspace)


def _publish(workspace: Path, target: Path, may_publish: Callable[[], None]) -> None:
    """Give the complete checkpoint its name."""
    failpoints.reach("publish")
    may_publish()
    if target.exists():
        # It did not verify, else it would have been kept; it goes aside until a newer checkpoint stands.
        target.rename(target.with_name(temporary_name(target.name)))
    workspace.rename(target)
    failpoints.reach("published")
    sync_directory(target.parent)
