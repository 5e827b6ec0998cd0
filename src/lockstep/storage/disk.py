"""Writing that survives a kill: a file is flushed before it gets its name, and a name changes in one move."""

import ctypes
import errno
import os
import secrets
import shutil
from itertools import takewhile
from pathlib import Path

from lockstep import failpoints

TEMPORARY = ".tmp-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def temporary_name(purpose: str) -> str:
    """A fresh name for something unfinished; what a dead write leaves behind is recognised by its beginning."""
    return f"{TEMPORARY}{purpose}-{secrets.token_hex(4)}"


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it; an OSError always names the file."""
    try:
        failpoints.reach("disk")
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_directory(path: Path) -> None:
    """Wait until the disk has the directory's entries, where the system can say so."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no directories
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and those above it, and wait until the disk has their names."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_directory(folder.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file in one move: a reader sees the old content or the new, never a part."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        write_durably(temporary, data)
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_directory(new: Path, target: Path) -> None:
    """Put a finished directory in the place of another; where the kernel can swap two names, in one move."""
    if not target.exists():
        new.rename(target)
    elif _exchange(new, target):
        shutil.rmtree(new, ignore_errors=True)
    else:
        aside = target.with_name(temporary_name(target.name))
        target.rename(aside)
        new.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
    sync_directory(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names by Linux's renameat2; False where the system or the file system has no such call."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0
