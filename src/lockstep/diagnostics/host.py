"""Processors, memory, shared memory and limits of this machine, as a container may have cut them."""

import math
import os
import resource
import shutil
from pathlib import Path

import psutil

from lockstep.diagnostics.finding import Finding, ok, warn

_CGROUP = Path("/sys/fs/cgroup")
_SHARED_MEMORY = Path("/dev/shm")
_GIB = 2**30


def look_at_host(gpus: int) -> list[Finding]:
    """Everything about the host that a run on so many GPUs depends on."""
    return [cores(), memory(), shared_memory(gpus), open_files()]


def cores() -> Finding:
    """Cores that this process may use; a quota below them makes threads wait for each other."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(_read(_CGROUP / "cpu.max"))
    threads = os.environ.get("OMP_NUM_THREADS")
    told = f"{usable} core(s)" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    if quota is not None and quota < usable:
        fix = f"give each rank --threads {max(1, math.floor(quota))} at most in all, or raise the container's quota"
        return warn("cores", f"{told}, but a quota of {quota:g}", fix)
    if threads and threads.isdigit() and int(threads) > usable:
        return warn("cores", told, f"unset OMP_NUM_THREADS, or set it to {usable} at most")
    return ok("cores", told)


def memory() -> Finding:
    """Free memory of the machine, or of the container where that is less."""
    free = psutil.virtual_memory().available
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, limit - used)
    told = f"{free / _GIB:.1f} GiB free"
    if free < 2 * _GIB:
        return warn("memory", told, "end other programs, or use fewer ranks: each needs about 1 GiB before it starts")
    swapped = psutil.swap_memory().percent
    if swapped > 50:
        return warn("memory", f"{told}, swap {swapped:.0f}% full", "end other programs: a rank that swaps stalls all")
    return ok("memory", told)


def shared_memory(gpus: int) -> Finding:
    """/dev/shm, through which NCCL connects the GPUs of one machine."""
    if not _SHARED_MEMORY.is_dir():
        return ok("shared memory", "no /dev/shm on this system")
    size = shutil.disk_usage(_SHARED_MEMORY)
    told = f"/dev/shm {size.free / _GIB:.2f} of {size.total / _GIB:.2f} GiB free"
    if size.free < _GIB and gpus > 1:
        fix = (
            "start the container with --shm-size=2g (Docker), or mount an emptyDir of medium Memory there (Kubernetes)"
        )
        return warn("shared memory", told, fix)
    return ok("shared memory", told)


def open_files() -> Finding:
    """The limit on open files, of which every rank's connections take some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < 1024:
        return warn("open files", f"at most {soft}", f"ulimit -n {min(hard, 65_536) if hard > 0 else 65_536}")
    return ok("open files", "no limit" if soft < 0 else f"at most {soft:,}")


def cpu_quota(text: str | None) -> float | None:
    """Cores' worth of time that a control group grants, from the text of cpu.max; None where it grants all."""
    words = (text or "max").split()
    return None if words[0] == "max" or len(words) < 2 else int(words[0]) / int(words[1])


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None
