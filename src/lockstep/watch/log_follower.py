"""Reads a run's metrics.jsonl as it grows, and again from the start when a resume has cut it."""

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from lockstep.storage.run_directory import LONGEST_LINE, METRICS
from lockstep.untrusted import open_regular, parse_json
from lockstep.watch.columns import Columns

# Bytes read at a time: between two portions others have their turn, and the server answers.
PORTION = LONGEST_LINE
# Bytes before the place reached that are compared: a file that was cut and has grown again has other ones there.
_TAIL = 256
# Lines of a long log that are enough for a first picture.
_ROUGH = 150


class LogFollower:
    """One log. `columns` is what can be shown now: a rough picture of a long log until all of it is read."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / METRICS
        self._whole = Columns()
        self._rough: Columns | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._tail = b""
        self._read_at: tuple[int, int, int] | None = None
        self.reading = 0
        """Counts how often `columns` was begun anew: within one reading they only grow."""
        self.version = 0
        """Counts the changes, so that a page knows what to ask for again."""

    @property
    def is_rough(self) -> bool:
        """Whether only a few lines of a long log are known yet."""
        return self._rough is not None

    @property
    def columns(self) -> Columns:
        """The log points that are known."""
        return self._rough or self._whole

    def read_on(self) -> bool:
        """Read the next portion; returns whether there is more. A missing or unreadable log is an empty one."""
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                mark = (found.st_ino, found.st_size, found.st_mtime_ns)
                if mark == self._read_at:
                    return False
                identity = (found.st_dev, found.st_ino)
                if identity != self._identity or not self._continues(file, found.st_size):
                    self._start_over(identity)
                if self._offset == 0 and self._rough is None and found.st_size > PORTION:
                    # That is enough for this time: every run should have a picture before one is read to its end.
                    self._look_over(file, found.st_size)
                    return True
                file.seek(self._offset)
                more = self._take(file.read(PORTION)) and self._offset < found.st_size
                if self._rough is not None and not more:
                    self._rough = None
                    self._begin_anew()
                self._read_at = None if more else mark
                return more
        except OSError:
            if len(self._whole):
                self._start_over(None)
            return False

    def _continues(self, file: BinaryIO, size: int) -> bool:
        """Whether what was read so far is still there."""
        if size < self._offset:
            return False
        file.seek(self._offset - len(self._tail))
        return file.read(len(self._tail)) == self._tail

    def _start_over(self, identity: tuple[int, int] | None) -> None:
        self._whole, self._rough = Columns(), None
        self._identity, self._offset, self._tail, self._read_at = identity, 0, b"", None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.reading += 1
        self.version += 1

    def _take(self, data: bytes) -> bool:
        """Add the complete lines; returns whether there was anything to take."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            # Half a line is read again later. One longer than any log point is passed over; its end parses as nothing.
            if len(data) < LONGEST_LINE:
                return False
            self._offset += len(data)
            self._tail = data[-_TAIL:]
            return True
        for line in data[:end].splitlines():
            _add(self._whole, line)
        self._offset += end
        self._tail = data[max(end - _TAIL, 0) : end]
        # While the rough picture is shown, nothing on the page changes.
        self.version += self._rough is None
        return True

    def _look_over(self, file: BinaryIO, size: int) -> None:
        """Read lines at even distances: a first picture of a log that takes long to read."""
        self._rough = Columns()
        self._begin_anew()
        for place in range(_ROUGH):
            file.seek(size * place // _ROUGH)
            # The seek leads into the middle of a line.
            file.readline(LONGEST_LINE)
            _add(self._rough, file.readline(LONGEST_LINE))
        for line in _last_lines(file, size):
            _add(self._rough, line)


def _last_lines(file: BinaryIO, size: int) -> list[bytes]:
    file.seek(max(size - LONGEST_LINE // 16, 0))
    return file.read(LONGEST_LINE // 16).split(b"\n")[1:-1][-3:]


def _add(columns: Columns, line: bytes) -> None:
    # A damaged line costs one point.
    with contextlib.suppress(ValueError):
        columns.add(parse_json(line))
