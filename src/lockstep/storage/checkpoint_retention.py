"""The checkpoints of a run as they stand on disk: which verify, which is the newest, which may go.

`root` is the run's directory; checkpoints lie in `root/checkpoints`, weights alone in `root/best` and `root/final`.
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
_TORN_STEP = re.compile(re.escape(TEMPORARY) + r"step-(\d{12,18})-.*")


def newest_valid(
    root: Path, report: Callable[[str], None], problem_of: Callable[[Path], str] = lambda _: ""
) -> Path | None:
    """The newest checkpoint that verifies, every damaged or unfinished one reported; None where there is none yet.

    `problem_of` tells what else is wrong with one; it is asked before contents are hashed, which can take long.
    """
    for torn in _unfinished(Path(root) / CHECKPOINTS):
        report(f"{torn}: a write that did not end, left aside")
    tried = []
    for path in reversed(_steps(root)):
        problems = inspect(path, contents=False) or list(filter(None, [problem_of(path)])) or inspect(path)
        if not problems:
            return path
        tried.append(f"{path.name} ({_shortened(problems)})")
        report(f"{path}: damaged, not used: {_shortened(problems)}")
    if tried:
        raise NoValidCheckpoint(
            f"{Path(root) / CHECKPOINTS}: none of {len(tried)} checkpoints verifies: {', '.join(tried)}; "
            "put back a copy of one, or start afresh under another --run-name"
        )
    return None


def verify_run(root: Path) -> dict[str, list[str]]:
    """The problems of every checkpoint of a run and of best/ and final/, by name; an empty list is a clean one."""
    stored = _steps(root) + [path for name in WEIGHTS if os.path.lexists(path := Path(root) / name)]
    return {path.relative_to(root).as_posix(): inspect(path) for path in stored}


def prune(root: Path, keep: int, protect: set[Path]) -> None:
    """Remove checkpoints beyond the newest `keep` valid ones, and unfinished ones. Rank 0 only, between saves.

    Nothing goes unless the newest verifies. Older ones were hashed when they were the newest; here they are sized.
    """
    assert keep >= 1, "at least one checkpoint is kept"
    if not is_folder(Path(root) / CHECKPOINTS):
        return
    newest_first = _steps(root)[::-1]
    if not newest_first or inspect(newest_first[0]):
        return
    protected = {path.resolve() for path in protect}
    kept = 0
    for path in newest_first:
        if kept < keep:
            kept += not inspect(path, contents=False)
        elif path.resolve() not in protected:
            _remove(path)
    _sweep(Path(root) / CHECKPOINTS, step_of(newest_first[0].name) or 0)


def sweep(root: Path) -> None:
    """Remove what dead writes of best/, status.json and others left. Rank 0 only, before this run writes any."""
    for torn in _unfinished(Path(root)):
        _discard(torn)


def _remove(path: Path) -> None:
    """Renamed first, so that a removal cut short leaves no damaged checkpoint; one that cannot go costs only room."""
    with contextlib.suppress(OSError):
        removed = path.rename(path.with_name(temporary_name(path.name)))
        failpoints.reach("prune")
        shutil.rmtree(removed, ignore_errors=True)


def _sweep(folder: Path, newest: int) -> None:
    """Unfinished checkpoints go once a valid one as new as they stands; until then they may be all there is."""
    for torn in _unfinished(folder):
        step = _TORN_STEP.fullmatch(torn.name)
        if step is None or int(step[1]) <= newest:
            _discard(torn)


def _discard(torn: Path) -> None:
    if torn.is_dir() and not torn.is_symlink():
        shutil.rmtree(torn, ignore_errors=True)
    else:
        # What cannot be removed costs only room.
        with contextlib.suppress(OSError):
            torn.unlink()


def _steps(root: Path) -> list[Path]:
    """The run's checkpoints, oldest first. What a link leads to is not the run's: nothing of it is used or removed."""
    folder = Path(root) / CHECKPOINTS
    if folder.is_symlink():
        raise NoValidCheckpoint(f"{folder}: is a link; nothing behind it is used: put the folder itself in its place")
    entries = folder.iterdir() if is_folder(folder) else ()
    found = [(step, path) for path in entries if (step := step_of(path.name)) is not None]
    return [path for _, path in sorted(found)]


def _unfinished(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{TEMPORARY}*")) if is_folder(folder) else []


def _shortened(problems: list[str]) -> str:
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return "; ".join(problems[:3]) + more
