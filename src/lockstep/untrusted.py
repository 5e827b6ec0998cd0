"""Files that anybody may have written: opened without waiting, measured before they are read, never through a link.

A run may come from a stranger, so every file below its directory is read through here, and so are the files that a user
names. What is wrong with one is an OSError with a `strerror` in words, or a ValueError for what stands in it.
"""

import errno
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

LARGEST_NUMBER = 2**63 - 1
"""No counter of a run is beyond it."""
_DEEPEST = 64
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLOCK = 1 << 20


def open_regular(path: Path, *, links: bool = False) -> io.BufferedReader:
    """Open a regular file for reading; a pipe or a device is refused without being waited for.

    `links`: follow one, which is right for a path that the user gave and wrong for what lies in a run.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(_open(path, flags, links), "rb")


def open_to_append(path: Path) -> io.FileIO:
    """Open a regular file, or a new one, to write behind its end."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return io.FileIO(_open(path, flags, links=False), "ab")


def _open(path: Path, flags: int, links: bool) -> int:
    if not links and path.is_symlink():
        raise OSError(errno.ELOOP, "is a link", str(path))
    try:
        # Between that look and this call a file may have become a link: the kernel refuses it.
        descriptor = os.open(path, flags | (0 if links else getattr(os, "O_NOFOLLOW", 0)), 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise OSError(errno.EINVAL, "not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_regular(path: Path, at_most: int, *, links: bool = False) -> bytes:
    """A regular file of at most so many bytes, whole; a larger one is refused before it is read."""
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > at_most:
            raise OSError(errno.EFBIG, f"larger than {at_most:,} bytes", str(path))
        try:
            return file.read(size)
        except MemoryError as error:
            # Not to be taken for a batch that is too large.
            raise OSError(errno.ENOMEM, "larger than the memory that is left", str(path)) from error


def read_json(path: Path, at_most: int) -> Any:
    """What a JSON file of at most so many bytes says."""
    return parse_json(read_regular(path, at_most))


def parse_json(data: bytes) -> Any:
    """What JSON says; ValueError where it is none, or nested deeper than anything that is written here."""
    if data.count(b"[") + data.count(b"{") > _DEEPEST:
        depth = 0
        for token in _BRACKETS.finditer(data):
            depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
            if depth > _DEEPEST:
                raise ValueError(f"nested deeper than {_DEEPEST}")
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def is_counter(value: Any, at_most: int = LARGEST_NUMBER) -> TypeGuard[int]:
    """Whether a value that was read is a whole number from 0 on, and none that no run can have."""
    return type(value) is int and 0 <= value <= at_most


def is_folder(path: Path) -> bool:
    """Whether there is a directory at a path, and no link to one."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """Whether there is a regular file at a path, and no link to one."""
    return stat.S_ISREG(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except (OSError, ValueError):  # none there, or a name that cannot be one
        return 0


def whole_lines(path: Path, longest: int) -> Iterator[bytes]:
    """The lines of a regular file that end, one by one; one that is longer than `longest` bytes is passed over."""
    with open_regular(path) as file:
        too_long = False
        while line := file.readline(longest):
            if line.endswith(b"\n") and not too_long:
                yield line
            too_long = not line.endswith(b"\n")


def lines_from_end(path: Path, longest: int, at_most: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a regular file, the last first, each with where it ends; at most so many bytes are read.

    In the place of a line of more than `longest` bytes stands an empty one.
    """
    with open_regular(path) as file:
        position = file.seek(0, os.SEEK_END)
        last = max(0, position - at_most)
        begun, ends = b"", position
        whole = False  # What stands behind the last line break is a line that a dead write left.
        while position > last:
            size = min(_BLOCK, position - last)
            position -= size
            file.seek(position)
            begun, *lines = (file.read(size) + begun).split(b"\n")
            starts = list(accumulate((len(line) + 1 for line in (begun, *lines)), initial=position))[1:-1]
            for start, line in zip(reversed(starts), reversed(lines), strict=True):
                if whole:
                    yield ends, line + b"\n" if len(line) < longest else b""
                whole, ends = True, start
            begun = begun[-longest:]
        if position == 0 and whole:
            yield ends, begun + b"\n" if len(begun) < longest else b""
