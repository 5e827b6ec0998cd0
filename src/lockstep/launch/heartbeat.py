"""A rank's heartbeat: sixty-four bytes shared with the launcher that say the process runs, and where it has got to."""

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "LOCKSTEP_HEARTBEAT"
"""The environment variable by which the launcher tells a rank where its heartbeat is."""
FINISHED = "finished"
"""The section that a rank tells when it has nothing left to do that others wait for."""
INTERVAL = 0.5
"""Seconds between two beats."""

_BEATS = struct.Struct("<q")
_PLACE = struct.Struct("<q48s")
_SIZE = 64


@dataclass(frozen=True)
class Reading:
    """What the launcher sees of a rank."""

    beats: int
    step: int
    """The last step the rank told; -1 before it told any."""
    section: str
    """What it was doing there."""

    def where(self) -> str:
        """The place in words; empty before the rank told any."""
        if self.step < 0:
            return ""
        return f"step {self.step:,}" + (f" ({self.section})" if self.section else "")


NO_READING = Reading(0, -1, "")
"""A rank that has said nothing yet."""


class Heartbeat:
    """The shared bytes of one rank. Writing them costs about a microsecond and cannot block."""

    def __init__(self, path: Path | None) -> None:
        if path is None:
            self._bytes = mmap.mmap(-1, _SIZE)
        else:
            with path.open("r+b") as file:
                self._bytes = mmap.mmap(file.fileno(), _SIZE)

    @classmethod
    def create(cls, path: Path) -> "Heartbeat":
        """A new heartbeat at a path, for the launcher."""
        path.write_bytes(_BEATS.pack(0) + _PLACE.pack(-1, b""))
        return cls(path)

    @classmethod
    def of_this_rank(cls) -> "Heartbeat":
        """The heartbeat that the launcher reads; one that nobody reads where there is no launcher."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else None)

    def tell(self, step: int, section: str = "") -> None:
        """Say where this rank is, for the message should it fail or hang there."""
        _PLACE.pack_into(self._bytes, _BEATS.size, step, section.encode()[:48])

    def read(self) -> Reading:
        """What the rank last said."""
        step, section = _PLACE.unpack_from(self._bytes, _BEATS.size)
        (beats,) = _BEATS.unpack_from(self._bytes)
        return Reading(beats, step, section.rstrip(b"\0").decode(errors="replace"))

    def beat(self) -> None:
        """Say that this process still runs Python."""
        (beats,) = _BEATS.unpack_from(self._bytes)
        _BEATS.pack_into(self._bytes, 0, beats + 1)


def keep_beating(heartbeat: Heartbeat) -> None:
    """Beat from a thread: it goes on while a collective waits, and ends when the process is stopped or stuck."""
    parent = os.getppid()

    def beat() -> None:
        while True:
            heartbeat.beat()
            if os.getppid() != parent:
                # Where the kernel has no parent-death signal, a rank without its launcher ends itself here.
                os._exit(3)
            time.sleep(INTERVAL)

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
