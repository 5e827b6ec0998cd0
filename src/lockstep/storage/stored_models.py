"""The weights that a run has on disk, by name and step. Needs no torch."""

from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.storage.checkpoint_retention import WEIGHTS, steps_on_disk
from lockstep.storage.manifest import MANIFEST, Damaged, read_manifest, step_of
from lockstep.untrusted import is_file, is_folder

NEWEST = "newest"
"""Stands for whichever of a run's models is the newest at the time, in the place of a name."""


@dataclass(frozen=True)
class StoredModel:
    """One checkpoint, or the weights in best/ or final/."""

    name: str
    """`final`, `best`, or the name of the checkpoint's folder."""
    path: Path
    step: int


def stored_models(root: Path) -> list[StoredModel]:
    """Everything in a run that has weights, the newest first; loading verifies it, this only looks."""
    found = []
    for name in WEIGHTS:
        try:
            if is_folder(path := Path(root) / name):
                found.append(StoredModel(name, path, read_manifest(path).step))
        except (OSError, Damaged):
            continue
    try:
        # A checkpoint may be removed while it is looked at: newer ones replace it.
        checkpoints = [path for path in steps_on_disk(root) if is_file(path / MANIFEST)]
    except (OSError, LockstepError):
        checkpoints = []
    found += [StoredModel(path.name, path, step_of(path.name) or 0) for path in checkpoints]
    # final/ first among equals: weights alone are read faster than a checkpoint.
    return sorted(found, key=lambda model: -model.step)
