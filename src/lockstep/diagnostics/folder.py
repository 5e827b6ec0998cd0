"""Checks of the folder for runs: write permission, free space, speed, and the file server's clock."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from lockstep.diagnostics.finding import Finding, bad, ok, warn
from lockstep.storage.disk import write_durably

# Bytes written to measure the speed.
_SAMPLE = 32 * 2**20
# Bytes.
_LEAST_FREE = 5 * 2**30
# Bytes per second, below which a checkpoint of a few hundred MB would keep a run waiting.
_SLOW = 20e6
# Seconds that the clocks may differ by.
_SKEW = 2.0


def look_at_folder(runs_dir: Path) -> list[Finding]:
    """Write a sample to the folder for runs, or to its nearest parent that exists."""
    place = _existing(runs_dir.absolute())
    if not os.access(place, os.W_OK | os.X_OK):
        fix = "choose another --runs-dir, or change the permissions"
        return [bad("disk", f"{place}: no permission to write", fix)]
    # Before the sample is written, which takes some of it.
    free = shutil.disk_usage(place).free
    try:
        speed, skew = _measure(place)
    except OSError as error:
        return [bad("disk", f"{place}: {error.strerror or error}", "free some space, or choose another --runs-dir")]
    return [room(place, free), pace(speed), clock(skew)]


def room(place: Path, free: int) -> Finding:
    """Check the free space for checkpoints."""
    found = f"{place}: {free / 2**30:.1f} GiB free"
    if free < _LEAST_FREE:
        return warn("disk", found, "free some space, choose another --runs-dir, or keep fewer checkpoints: --keep 1")
    return ok("disk", found)


def pace(bytes_per_second: float) -> Finding:
    """Check the speed of durable writes, as a checkpoint needs them."""
    found = f"{bytes_per_second / 1e6:,.0f} MB/s, flushed to the disk"
    if bytes_per_second < _SLOW:
        return warn("disk speed", found, "choose a --runs-dir on a local disk, or save less often: --checkpoint-every")
    return ok("disk speed", found)


def clock(skew: float) -> Finding:
    """Check that this machine and the disk, which may belong to a file server, agree on the time."""
    if abs(skew) > _SKEW:
        fix = "synchronize both machines' clocks (chrony, systemd-timesyncd): runs are listed by time"
        return warn("clock", f"the disk is {skew:+.1f} s ahead of this machine", fix)
    return ok("clock", f"disk and machine agree within {max(abs(skew), 0.1):.1f} s")


def _measure(place: Path) -> tuple[float, float]:
    """Bytes per second to the disk, and seconds by which the disk's clock is ahead of ours."""
    with tempfile.TemporaryDirectory(prefix=".lockstep-doctor-", dir=place) as folder:
        sample = Path(folder) / "sample"
        # Random, because some file systems compress.
        data = os.urandom(_SAMPLE)
        start = time.perf_counter()
        write_durably(sample, data)
        seconds = time.perf_counter() - start
        # A file server stamps new files with its own clock.
        probe = Path(folder) / "clock"
        now = time.time()
        probe.touch()
        return _SAMPLE / seconds, probe.stat().st_mtime - now


def _existing(folder: Path) -> Path:
    # The root always exists, so there is always one.
    return next(place for place in (folder, *folder.parents) if place.is_dir())
