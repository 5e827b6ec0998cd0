"""The checkpoints of a run on disk: which ones verify, which is the newest, which may be removed.

`root` is the run directory; checkpoints are in `root/checkpoints`, weights alone in `root/best` and `root/final`.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from lockstep import failpoints
from lockstep.errors import NoValidCheckpoint
from lockstep.storage.disk import TEMPORARY, temporary_name
from lockstep.storage.manifest import inspect, step_of
from lockstep.untrusted import is_folder

CHECKPOINTS = "checkpoints"
WEIGHTS = ("final", "best")
"""Directories of weights alone; the first that exists is what a run's path means."""
# The temporary name of a step's checkpoint: what `disk.temporary_name` makes of `manifest.step_name`.
_TORN_STEP = re.compile(re.escape(TEMPORARY) + r"step-(\d{12,18})-.*")


def newest_valid(
    root: Path, report: Callable[[str], None], problem_of: Callable[[Path], str] = lambda _: ""
) -> Path | None:
    """The newest checkpoint that verifies, or None if there is none yet; damaged and unfinished ones are reported.

    `problem_of` returns any further problem of a checkpoint; it runs before contents are hashed, which can take long.
    """
    for torn in _unfinished(Path(root) / CHECKPOINTS):
        report(f"{torn}: an unfinished write, ignored")
    tried = []
    for path in reversed(steps_on_disk(root)):
        problems = _problems(path, problem_of)
        if not problems:
            return path
        tried.append(f"{path.name} ({_shortened(problems)})")
        report(f"{path}: damaged, not used: {_shortened(problems)}")
    if tried:
        # Starting over would silently discard the run's progress, so the user decides.
        raise NoValidCheckpoint(
            f"{Path(root) / CHECKPOINTS}: none of {len(tried)} checkpoints verifies: {', '.join(tried)}; "
            "restore one from a backup, or start a new run under another --run-name"
        )
    return None


def chosen_valid(path: Path, problem_of: Callable[[Path], str] = lambda _: "") -> Path:
    """A checkpoint that the user chose; NoValidCheckpoint if it does not verify. `problem_of`: as in `newest_valid`."""
    if problems := _problems(path, problem_of):
        raise NoValidCheckpoint(
            f"{path}: damaged, not used: {_shortened(problems)}; choose another one; `lockstep verify RUN` lists them"
        )
    return path


def _problems(path: Path, problem_of: Callable[[Path], str]) -> list[str]:
    # Cheapest check first: sizes, then the caller's own check, then hashes.
    return inspect(path, contents=False) or list(filter(None, [problem_of(path)])) or inspect(path)


def verify_run(root: Path) -> dict[str, list[str]]:
    """The problems of every checkpoint of a run and of best/ and final/, by name; an empty list means intact."""
    # lexists: a dangling link is a problem to report, not an absent directory.
    stored = steps_on_disk(root) + [path for name in WEIGHTS if os.path.lexists(path := Path(root) / name)]
    return {path.relative_to(root).as_posix(): inspect(path) for path in stored}


def prune(root: Path, keep: int, protect: set[Path]) -> None:
    """Remove checkpoints beyond the newest `keep` valid ones (0: none), and unfinished ones. Rank 0, between saves.

    Nothing is removed unless the newest verifies. Older ones were hashed when they were the newest; here only their
    sizes are compared.
    """
    if not is_folder(Path(root) / CHECKPOINTS):
        return
    newest_first = steps_on_disk(root)[::-1]
    if not newest_first or inspect(newest_first[0]):
        return
    protected = {path.resolve() for path in protect}
    kept = 0
    for path in newest_first:
        if kept < keep:
            # A damaged one does not count towards `keep`, and stays until it is older than those that do.
            kept += not inspect(path, contents=False)
        elif keep and path.resolve() not in protected:
            _remove(path)
    _sweep(Path(root) / CHECKPOINTS, step_of(newest_first[0].name) or 0)


def sweep(root: Path) -> None:
    """Remove leftovers of killed writes of best/, status.json and so on. Rank 0 only, before this run writes any."""
    for torn in _unfinished(Path(root)):
        _discard(torn)


def _remove(path: Path) -> None:
    """Remove a checkpoint; renamed first, so that an interrupted removal does not leave a damaged checkpoint."""
    # A checkpoint that cannot be removed costs disk space only: no reason to stop the run.
    with contextlib.suppress(OSError):
        removed = path.rename(path.with_name(temporary_name(path.name)))
        failpoints.reach("prune")
        shutil.rmtree(removed, ignore_errors=True)


def _sweep(folder: Path, newest: int) -> None:
    """Remove unfinished checkpoints up to step `newest`, which has a valid one."""
    for torn in _unfinished(folder):
        step = _TORN_STEP.fullmatch(torn.name)
        # Later ones stay: a set-aside checkpoint may be all that is left of those steps.
        if step is None or int(step[1]) <= newest:
            _discard(torn)


def _discard(torn: Path) -> None:
    # Of a link only the link goes, never what it points to.
    if torn.is_dir() and not torn.is_symlink():
        shutil.rmtree(torn, ignore_errors=True)
    else:
        # What cannot be removed costs disk space only.
        with contextlib.suppress(OSError):
            torn.unlink()


def steps_on_disk(root: Path) -> list[Path]:
    """The run's checkpoints, oldest first. Links are never followed: their targets do not belong to the run."""
    folder = Path(root) / CHECKPOINTS
    if folder.is_symlink():
        raise NoValidCheckpoint(f"{folder}: is a link, and links are not followed; replace it with the folder itself")
    entries = folder.iterdir() if is_folder(folder) else ()
    found = [(step, path) for path in entries if (step := step_of(path.name)) is not None]
    # By number, not by name: steps of more than 12 digits have longer names.
    return [path for _, path in sorted(found)]


def _unfinished(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{TEMPORARY}*")) if is_folder(folder) else []


def _shortened(problems: list[str]) -> str:
    # A checkpoint whose lanes are all missing would fill the screen.
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return "; ".join(problems[:3]) + more
