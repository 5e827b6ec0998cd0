"""What a run leaves behind when it goes back to an earlier checkpoint: moved to `aside/NAME`, never removed."""

import contextlib
import shutil
from pathlib import Path

from lockstep.storage.checkpoint_retention import CHECKPOINTS, WEIGHTS, steps_on_disk
from lockstep.storage.disk import TEMPORARY, make_directory, sync_directory
from lockstep.storage.manifest import Damaged, read_manifest, step_of
from lockstep.storage.run_directory import METRICS
from lockstep.untrusted import is_file, is_folder

ASIDE = "aside"


def later_than(root: Path, step: int) -> list[Path]:
    """The checkpoints of a run after a step, and its best/ and final/ if they were made later."""
    checkpoints = [path for path in steps_on_disk(root) if (step_of(path.name) or 0) > step]
    return checkpoints + [path for name in WEIGHTS if _weights_step(path := Path(root) / name) > step]


def set_aside(root: Path, step: int, name: str) -> str:
    """Move what is later than a step into aside/NAME, with a copy of the metrics; returns a line about it.

    Done once aside/NAME exists; after an interruption, calling it again finishes the move. Rank 0 only.
    """
    target = Path(root) / ASIDE / name
    workspace = target.with_name(f"{TEMPORARY}{name}")
    make_directory(workspace / CHECKPOINTS)
    # Copied, since the run continues with the part up to the step; and first, since that part is all that stays.
    if is_file(Path(root) / METRICS) and not (workspace / METRICS).exists():
        shutil.copyfile(Path(root) / METRICS, workspace / f"{TEMPORARY}{METRICS}")
        (workspace / f"{TEMPORARY}{METRICS}").rename(workspace / METRICS)
    for path in later_than(root, step):
        path.rename(workspace / path.relative_to(root))
    count = sum(1 for _ in (workspace / CHECKPOINTS).iterdir())
    others = sorted(path.name for path in workspace.iterdir() if path.name != CHECKPOINTS)
    for folder in (workspace / CHECKPOINTS, workspace, Path(root) / CHECKPOINTS, Path(root)):
        sync_directory(folder)
    workspace.rename(target)
    sync_directory(target.parent)
    named = ", ".join((f"{count} later checkpoint{'s' if count != 1 else ''}", *others))
    return f"set aside in {target}: {named}; remove that folder when you no longer need it"


def is_aside(root: Path, name: str) -> bool:
    """Whether `set_aside` has been completed under this name."""
    return is_folder(Path(root) / ASIDE / name)


def _weights_step(path: Path) -> int:
    """The step of stored weights; -1 if there are none, or none that can be read: those stay where they are."""
    with contextlib.suppress(Damaged):
        return read_manifest(path).step if is_folder(path) else -1
    return -1
