"""Crash-safe writing: a file is flushed to disk before it gets its final name, and renames are atomic."""

import ctypes
import errno
import os
import secrets
import shutil
from itertools import takewhile
from pathlib import Path

from lockstep import failpoints

TEMPORARY = ".tmp-"
"""How the name of everything unfinished starts."""
# From Linux's <fcntl.h> and <linux/fs.h>: paths are relative to the working directory; swap the two names.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def temporary_name(purpose: str) -> str:
    """A new name for something unfinished; leftovers of killed writes are recognised by its prefix."""
    # Random, so that two writers (a killed one's leftovers, or a superseded world) never share a name.
    return f"{TEMPORARY}{purpose}-{secrets.token_hex(4)}"


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on disk; an OSError always names the file."""
    try:
        failpoints.reach("disk")
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Errors of write and fsync carry no file name, and messages to the user need one.
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_directory(path: Path) -> None:
    """Wait until the directory's entries are on disk, where the system supports it."""
    # Windows cannot open a directory as a file.
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync directories
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and its parents, and wait until their names are on disk."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    # A directory's name is an entry of its parent, so the parents of the new ones are synced, outermost first.
    for folder in reversed(missing):
        sync_directory(folder.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a mixture."""
    # In the same directory, because a rename is atomic only within one file system.
    temporary = path.with_name(temporary_name(path.name))
    try:
        write_durably(temporary, data)
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_directory(new: Path, target: Path) -> None:
    """Put a finished directory in the place of another, atomically where the kernel can swap two names."""
    if not target.exists():
        new.rename(target)
    elif _exchange(new, target):
        # After the swap `new` holds the old content.
        shutil.rmtree(new, ignore_errors=True)
    else:
        # rename() cannot replace a directory that is not empty. Between these two renames `target` is missing.
        aside = target.with_name(temporary_name(target.name))
        target.rename(aside)
        new.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
    sync_directory(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names with Linux's renameat2; False if the system or the file system lacks it."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0
