"""Reading untrusted files: opened without blocking, size-checked before they are read, never through a symbolic link.

A run directory may come from a stranger, so every file in it is read through this module, and so are the files a user
names. Problems raise OSError with a readable `strerror`, or ValueError for malformed content.
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
"""The largest value of a counter: what int64 tensors and other readers can hold."""
LARGEST_FLOAT = 1e300
"""Below it is every float that a run stores; a little room is left, so that a sum of two does not overflow."""
LATEST = 253_402_300_799.0
"""The last second of the year 9999, the latest that datetime can show."""
_DEEPEST = 64
"""Levels of nesting; Lockstep writes far fewer, and the JSON parser recurses for each."""
# Strings are matched as a whole, so that brackets inside them are not counted.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLOCK = 1 << 20


def open_regular(path: Path, *, links: bool = False) -> io.BufferedReader:
    """Open a regular file for reading; a pipe or a device is refused without blocking.

    `links`: follow a symbolic link, which is right for a path the user gave and wrong inside a run directory.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(_open(path, flags, links), "rb")


def open_to_append(path: Path) -> io.FileIO:
    """Open a regular file for appending; it is created if missing."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return io.FileIO(_open(path, flags, links=False), "ab")


def _open(path: Path, flags: int, links: bool) -> int:
    if not links and path.is_symlink():
        raise OSError(errno.ELOOP, "is a link", str(path))
    try:
        # The file may have become a link since the check above; O_NOFOLLOW has the kernel refuse it.
        descriptor = os.open(path, flags | (0 if links else getattr(os, "O_NOFOLLOW", 0)), 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO:  # opening a pipe for writing that nobody reads
            raise OSError(errno.EINVAL, "not a regular file", str(path)) from error
        raise
    # Checked on the descriptor, since the path could be replaced in between. O_NONBLOCK keeps the open of a pipe from
    # waiting for its other end; it has no effect on regular files.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_regular(path: Path, at_most: int, *, links: bool = False) -> bytes:
    """The content of a regular file of at most `at_most` bytes; a larger one is refused before it is read."""
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > at_most:
            raise OSError(errno.EFBIG, f"larger than {at_most:,} bytes", str(path))
        try:
            return file.read(size)
        except MemoryError as error:
            # Otherwise it would be handled like a batch that does not fit into memory.
            raise OSError(errno.ENOMEM, "larger than the memory that is left", str(path)) from error


def read_json(path: Path, at_most: int) -> Any:
    """Parse a JSON file of at most `at_most` bytes."""
    return parse_json(read_regular(path, at_most))


def parse_json(data: bytes) -> Any:
    """Parse JSON; ValueError if it is malformed, or nested deeper than anything Lockstep writes."""
    # Counting is fast and rules out most files; only then are the brackets walked.
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
    """Whether a parsed value is an integer from 0 to `at_most`."""
    # `type`, not isinstance: True is an instance of int.
    return type(value) is int and 0 <= value <= at_most


def is_number(value: Any, below: float) -> TypeGuard[float]:
    """Whether a parsed value is a number of a size less than `below`, which is finite; NaN is none."""
    # Compared and not converted: an int of JSON may be too large for a float. For `type` see above.
    return type(value) in (int, float) and -below < value < below


def is_folder(path: Path) -> bool:
    """Whether a path is a directory, and not a link to one."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """Whether a path is a regular file, and not a link to one."""
    return stat.S_ISREG(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except (OSError, ValueError):  # missing, or not a valid name (a null byte)
        return 0


def whole_lines(path: Path, longest: int) -> Iterator[bytes]:
    """The complete lines of a regular file; lines longer than `longest` bytes are skipped."""
    with open_regular(path) as file:
        too_long = False
        # readline with a limit returns an over-long line in pieces; only its last piece ends in a line break.
        while line := file.readline(longest):
            if line.endswith(b"\n") and not too_long:
                yield line
            too_long = not line.endswith(b"\n")


def lines_from_end(path: Path, longest: int, at_most: int) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a regular file, last first, each with the offset of its end; reads at most `at_most` bytes.

    A line of more than `longest` bytes is replaced by an empty one.
    """
    with open_regular(path) as file:
        position = file.seek(0, os.SEEK_END)
        last = max(0, position - at_most)
        begun, ends = b"", position
        whole = False  # What follows the last line break is an incomplete line, left by a write that was cut off.
        while position > last:
            size = min(_BLOCK, position - last)
            position -= size
            file.seek(position)
            # `begun` is the part of a line whose start lies in a block not read yet.
            begun, *lines = (file.read(size) + begun).split(b"\n")
            starts = list(accumulate((len(line) + 1 for line in (begun, *lines)), initial=position))[1:-1]
            for start, line in zip(reversed(starts), reversed(lines), strict=True):
                if whole:
                    yield ends, line + b"\n" if len(line) < longest else b""
                whole, ends = True, start
            # Bounds the memory for an endless line; at `longest` bytes it is too long anyway.
            begun = begun[-longest:]
        if position == 0 and whole:
            yield ends, begun + b"\n" if len(begun) < longest else b""
