"""The folder that runs are written to: whether it can be written, how much fits, how fast, and whose clock it shows."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from lockstep.diagnostics.finding import Finding, bad, ok, warn
from lockstep.storage.disk import write_durably

_SAMPLE = 32 * 2**20
_LEAST_FREE = 5 * 2**30
_SLOW = 20e6
"""Bytes a second below which a checkpoint of a few hundred MB would keep a run waiting."""
_SKEW = 2.0


def look_at_folder(runs_dir: Path) -> list[Finding]:
    """Write a sample where runs would go, or in the nearest folder above it that exists."""
    place = _existing(runs_dir.absolute())
    if not os.access(place, os.W_OK | os.X_OK):
        fix = "give another --runs-dir, or the right to write there"
        return [bad("disk", f"{place}: may not be written", fix)]
    free = shutil.disk_usage(place).free
    try:
        speed, skew = _measure(place)
    except OSError as error:
        return [bad("disk", f"{place}: {error.strerror or error}", "free some space, or give another --runs-dir")]
    return [room(place, free), pace(speed), clock(skew)]


def room(place: Path, free: int) -> Finding:
    """Whether checkpoints will fit for a while."""
    told = f"{place}: {free / 2**30:.1f} GiB free"
    if free < _LEAST_FREE:
        return warn("disk", told, "free some space, give another --runs-dir, or keep fewer checkpoints: --keep 1")
    return ok("disk", told)


def pace(bytes_per_second: float) -> Finding:
    """How fast data reaches the disk for good."""
    told = f"{bytes_per_second / 1e6:,.0f} MB/s until it is safe on the disk"
    if bytes_per_second < _SLOW:
        return warn("disk speed", told, "give a --runs-dir on a local disk, or save less often: --checkpoint-every")
    return ok("disk speed", told)


def clock(skew: float) -> Finding:
    """Whether the disk, which may be another machine's, and this machine agree on the time."""
    if abs(skew) > _SKEW:
        fix = "synchronise both machines' clocks (chrony, systemd-timesyncd): a stale lock is known by its age"
        return warn("clock", f"the disk is {skew:+.1f} s ahead of this machine", fix)
    return ok("clock", f"disk and machine agree within {max(abs(skew), 0.1):.1f} s")


def _measure(place: Path) -> tuple[float, float]:
    """Bytes a second to the disk, and seconds by which the disk's clock is ahead of ours."""
    with tempfile.TemporaryDirectory(prefix=".lockstep-doctor-", dir=place) as folder:
        sample = Path(folder) / "sample"
        data = os.urandom(_SAMPLE)
        start = time.perf_counter()
        write_durably(sample, data)
        seconds = time.perf_counter() - start
        probe = Path(folder) / "clock"
        now = time.time()
        probe.touch()
        return _SAMPLE / seconds, probe.stat().st_mtime - now


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.is_dir())
