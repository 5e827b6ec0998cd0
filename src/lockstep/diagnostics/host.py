"""Checks of the host: cores, memory, shared memory and open files, within the limits of a container."""

import math
import os
import shutil
from pathlib import Path

import psutil

from lockstep.diagnostics.finding import Finding, ok, warn

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Control groups, version 2: where a container sees its own limits.
_CGROUP = Path("/sys/fs/cgroup")
_SHARED_MEMORY = Path("/dev/shm")
_GIB = 2**30


def look_at_host(gpus: int) -> list[Finding]:
    """Check everything about the host that a run on this many GPUs depends on."""
    return [cores(), memory(), shared_memory(gpus), open_files()]


def cores() -> Finding:
    """Check the cores that this process may use, the container's quota and OMP_NUM_THREADS."""
    # A quota does not hide cores, so torch starts a thread for each, and these then wait for each other.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(_read(_CGROUP / "cpu.max"))
    threads = os.environ.get("OMP_NUM_THREADS")
    found = f"{usable} core(s)" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    if quota is not None and quota < usable:
        most = max(1, math.floor(quota))
        fix = f"use --threads {most} at most, summed over all ranks, or raise the container's quota"
        return warn("cores", f"{found}, but a quota of {quota:g}", fix)
    if threads and threads.isdigit() and int(threads) > usable:
        return warn("cores", found, f"unset OMP_NUM_THREADS, or set it to at most {usable}")
    return ok("cores", found)


def memory() -> Finding:
    """Check the free memory of the machine, or of the container if that is less."""
    free = psutil.virtual_memory().available
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, limit - used)
    found = f"{free / _GIB:.1f} GiB free"
    if free < 2 * _GIB:
        return warn("memory", found, "end other programs, or use fewer ranks: each needs about 1 GiB before it starts")
    swapped = psutil.swap_memory().percent
    # Some swap in use is normal: idle programs end up there.
    if swapped > 50:
        return warn("memory", f"{found}, swap {swapped:.0f}% full", "end other programs: a rank that swaps stalls all")
    return ok("memory", found)


def shared_memory(gpus: int) -> Finding:
    """Check /dev/shm, through which NCCL connects the GPUs of one machine. Docker's default is 64 MB."""
    if not _SHARED_MEMORY.is_dir():
        return ok("shared memory", "no /dev/shm on this system")
    size = shutil.disk_usage(_SHARED_MEMORY)
    found = f"/dev/shm {size.free / _GIB:.2f} of {size.total / _GIB:.2f} GiB free"
    # One GPU has no peers to connect to.
    if size.free < _GIB and gpus > 1:
        fix = (
            "start the container with --shm-size=2g (Docker), or mount an emptyDir of medium Memory there (Kubernetes)"
        )
        return warn("shared memory", found, fix)
    return ok("shared memory", found)


def open_files() -> Finding:
    """Check the limit on open files; every connection between ranks takes one."""
    if resource is None:
        return ok("open files", "no limit that a run could meet on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Below 0: no limit (RLIM_INFINITY is -1).
    if 0 <= soft < 1024:
        return warn("open files", f"at most {soft}", f"ulimit -n {min(hard, 65_536) if hard > 0 else 65_536}")
    return ok("open files", "no limit" if soft < 0 else f"at most {soft:,}")


def cpu_quota(text: str | None) -> float | None:
    """The CPU quota of a control group in cores, from the content of cpu.max; None without a quota."""
    # "QUOTA PERIOD" in microseconds, or "max PERIOD".
    parts = (text or "max").split()
    return None if parts[0] == "max" or len(parts) < 2 else int(parts[0]) / int(parts[1])


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    # "max" (no limit) and a missing file both mean that there is no number.
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None
