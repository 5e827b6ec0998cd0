"""Lines for whoever reads them. A run goes on where nobody does: `| head -1`, a closed terminal, a full disk."""

import atexit
import contextlib
import errno
import os
import sys
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO)
"""What a stream says whose reader or terminal does not come back."""
_dirty: set[int] = set()
"""Descriptors that refused a line, which is still in their buffer."""


def tell(line: str, stream: TextIO | None = None, *, end: str = "\n") -> None:
    """Print a line at once, to stdout unless told otherwise; one that cannot be written is lost, and nothing else."""
    stream = sys.stdout if stream is None else stream
    if stream is None:
        return
    try:
        print(line, file=stream, end=end, flush=True)
    except OSError as error:
        if error.errno in _GONE:
            _silence(stream)
        elif stream.fileno() not in _dirty:
            # A full disk may have room later. What is in the buffer when the process ends must not change its code.
            _dirty.add(stream.fileno())
            atexit.register(_empty, stream)


def open_missing_streams() -> None:
    """Put the null device where stdin, stdout or stderr is closed, else the next file opened would stand for it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is this one, since those below it are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person may be looking at a stream, which is None where it was closed from the start."""
    return stream is not None and stream.isatty()


def _empty(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Let what was and will be written there go nowhere, in this process and in libraries that it uses."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
