"""A rank's heartbeat: 64 bytes of memory shared with the launcher that say the process is alive, and at which step."""

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "LOCKSTEP_HEARTBEAT"
"""The environment variable that holds the path of a rank's heartbeat file."""
FINISHED = "finished"
"""The section a rank reports once no other rank waits for it any more."""
EVALUATING, SAVING = "evaluating", "saving"
"""Sections that may take minutes and end by themselves: a launcher that was asked to stop waits for them."""
INTERVAL = 0.5
"""Seconds between two beats."""

# The layout: a counter of beats (8 bytes), the step (8 bytes), the section (48 bytes of UTF-8, padded with zeros). The
# training thread writes step and section while the beating thread writes the counter, so they share no field.
_BEATS = struct.Struct("<q")
_PLACE = struct.Struct("<q48s")
_SIZE = 64


@dataclass(frozen=True)
class Reading:
    """One reading of a rank's heartbeat."""

    beats: int
    """Beats so far; the number only matters in that it changes."""
    step: int
    """The last step the rank reported; -1 before the first."""
    section: str
    """What it was doing there."""

    def where(self) -> str:
        """Step and section for a message; empty before the rank reported any."""
        if self.step < 0:
            return ""
        return f"step {self.step:,}" + (f" ({self.section})" if self.section else "")


NO_READING = Reading(0, -1, "")
"""A rank that has reported nothing yet."""


class Heartbeat:
    """The shared bytes of one rank. Writing them costs about a microsecond and cannot block."""

    def __init__(self, path: Path | None) -> None:
        if path is None:
            # Anonymous memory: without a launcher nobody reads it, and callers need not ask.
            self._bytes = mmap.mmap(-1, _SIZE)
        else:
            with path.open("r+b") as file:
                self._bytes = mmap.mmap(file.fileno(), _SIZE)

    @classmethod
    def create(cls, path: Path) -> "Heartbeat":
        """Create the heartbeat file of a rank. Called by the launcher before the rank starts."""
        path.write_bytes(_BEATS.pack(0) + _PLACE.pack(-1, b""))
        return cls(path)

    @classmethod
    def of_this_rank(cls) -> "Heartbeat":
        """This rank's heartbeat; one that nobody reads if there is no launcher."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else None)

    def tell(self, step: int, section: str = "") -> None:
        """Report where this rank is, for the message if it fails or hangs there."""
        # Plain memory writes: no system call, no lock, so it is cheap enough for every section of every update.
        _PLACE.pack_into(self._bytes, _BEATS.size, step, section.encode()[:48])

    def read(self) -> Reading:
        """The current values."""
        step, section = _PLACE.unpack_from(self._bytes, _BEATS.size)
        (beats,) = _BEATS.unpack_from(self._bytes)
        # A write may be under way in the other process; a half-written section must not raise.
        return Reading(beats, step, section.rstrip(b"\0").decode(errors="replace"))

    def beat(self) -> None:
        """Signal that this process still executes Python."""
        (beats,) = _BEATS.unpack_from(self._bytes)
        _BEATS.pack_into(self._bytes, 0, beats + 1)


def keep_beating(heartbeat: Heartbeat) -> None:
    """Beat from a thread: continues while a collective waits, stops if the process is suspended or the GIL is held."""
    parent = os.getppid()

    def beat() -> None:
        while True:
            heartbeat.beat()
            if os.getppid() != parent:
                # Only Linux has a parent-death signal; elsewhere an orphaned rank ends itself here.
                os._exit(3)
            time.sleep(INTERVAL)

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
