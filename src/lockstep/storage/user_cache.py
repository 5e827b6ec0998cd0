"""The user's cache: what workloads prepare once and can make again. `lockstep cache` shows and clears it."""

import contextlib
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from lockstep.untrusted import is_folder

LIMIT = 4 << 30
"""Bytes; beyond it, what was used least recently is removed."""
# Only folders with names of our own are ever counted or removed: the cache may lie in a folder that holds other things.
_ENTRY = re.compile(r"[a-z0-9]{1,40}-[0-9a-f]{16}")


@dataclass(frozen=True)
class CacheEntry:
    """One folder of the cache."""

    path: Path
    size: int
    """Bytes."""
    used: float
    """When it was last used, in seconds since 1970."""


def user_cache() -> Path:
    """The folder for the caches of this user: $XDG_CACHE_HOME/lockstep, or .cache/lockstep in the home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lockstep"


def entries(folder: Path) -> list[CacheEntry]:
    """What the cache holds, the most recently used first."""
    found = [path for path in (folder.iterdir() if is_folder(folder) else ()) if _ENTRY.fullmatch(path.name)]
    listed = [CacheEntry(path, _size(path), path.lstat().st_mtime) for path in found if is_folder(path)]
    return sorted(listed, key=lambda entry: -entry.used)


def note_use(path: Path) -> None:
    """Mark an entry as used now."""
    # A cache that this user may read but not write to works as well; it is not ours to trim.
    with contextlib.suppress(OSError):
        os.utime(path)


def trim(folder: Path, limit: int = LIMIT) -> list[CacheEntry]:
    """Remove what was used least recently, until the rest fits into `limit` bytes; the latest always stays."""
    removed, total = [], 0
    for number, entry in enumerate(entries(folder)):
        total += entry.size
        if number and total > limit:
            remove(entry)
            removed.append(entry)
    return removed


def remove(entry: CacheEntry) -> None:
    """Remove an entry; a process that has read it already is not disturbed."""
    shutil.rmtree(entry.path, ignore_errors=True)


def described(entry: CacheEntry) -> str:
    """An entry as a line: name, size, last use."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
    return f"{entry.path.name:40} {entry.size / 1e6:>10,.1f} MB  {when}"


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*"))
