"""The heartbeat monitor: the launcher's view of its ranks' heartbeats, and of the kernel's out-of-memory killer."""

import contextlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from lockstep.launch.heartbeat import Heartbeat

# The container's own counter first: /proc/vmstat counts the kills of the whole machine.
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))


class HeartbeatMonitor:
    """Tracks how long each rank of one attempt has been silent."""

    def __init__(self) -> None:
        self._beats: dict[int, int] = {}
        self._quiet: dict[int, float] = {}
        self._looked_at = time.monotonic()
        self._memory_kills = _memory_kills()

    def seconds_silent(self, heartbeats: Mapping[int, Heartbeat], running: Collection[int]) -> dict[int, float]:
        """Seconds without a beat, for every running rank."""
        now = time.monotonic()
        # After the machine was suspended (or this launcher stopped), `now` jumps. Counting at most a second of it keeps
        # healthy ranks, which were suspended too, from looking silent.
        passed, self._looked_at = min(now - self._looked_at, 1.0), now
        for rank in running:
            beats = heartbeats[rank].read().beats
            # No beat yet: the rank is still importing, or it is a program without a heartbeat. Neither is a hang.
            answered = beats == 0 or beats != self._beats.get(rank)
            self._beats[rank] = beats
            self._quiet[rank] = 0.0 if answered else self._quiet[rank] + passed
        return {rank: self._quiet[rank] for rank in running}

    def memory_ran_out(self) -> bool:
        """Whether the kernel's out-of-memory killer has killed a process since this attempt began."""
        return _memory_kills() > self._memory_kills


def _memory_kills() -> int:
    """Out-of-memory kills in this container, else on this machine; 0 where the kernel does not count them."""
    for file in _COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0
