"""The heartbeat monitor: watches the heartbeats of ranks from outside, and notices those that no longer answer."""

import contextlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from lockstep.launch.heartbeat import Heartbeat

_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))


class HeartbeatMonitor:
    """How long each rank of one attempt has been silent."""

    def __init__(self) -> None:
        self._beats: dict[int, int] = {}
        self._quiet: dict[int, float] = {}
        self._looked_at = time.monotonic()
        self._memory_kills = _memory_kills()

    def look(self, heartbeats: Mapping[int, Heartbeat], running: Collection[int]) -> dict[int, float]:
        """Seconds without a beat, for every running rank."""
        now = time.monotonic()
        # A machine that slept must not count its own absence as theirs.
        passed, self._looked_at = min(now - self._looked_at, 1.0), now
        for rank in running:
            beats = heartbeats[rank].read().beats
            # A rank without a first beat is still starting, or is a program that has no heartbeat.
            answered = beats == 0 or beats != self._beats.get(rank)
            self._beats[rank] = beats
            self._quiet[rank] = 0.0 if answered else self._quiet[rank] + passed
        return {rank: self._quiet[rank] for rank in running}

    def memory_ran_out(self) -> bool:
        """Whether the kernel has killed a process for want of memory since this attempt began."""
        return _memory_kills() > self._memory_kills


def _memory_kills() -> int:
    """Kills for want of memory, of this container where there is one, else of the machine; 0 where nobody counts."""
    for file in _COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0
