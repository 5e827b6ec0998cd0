"""Writing that survives a kill: a file is flushed before it gets its name, and a name changes in one move."""

import ctypes
import errno
import io
import os
import secrets
import shutil
import stat
from pathlib import Path

TEMPORARY = ".tmp-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def temporary_name(purpose: str) -> str:
    """A fresh name for something unfinished; what a dead write leaves behind is recognised by its beginning."""
    return f"{TEMPORARY}{purpose}-{secrets.token_hex(4)}"


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it; an OSError always names the file."""
    try:
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


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading; a link, a pipe or a device is refused without being waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_small(path: Path, limit: int) -> bytes:
    """A regular file of at most limit bytes, whole; a larger one is refused before it is read."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
        return file.read(limit)
