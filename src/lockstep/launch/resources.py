"""What ranks may use of this machine: GPUs, threads, memory, file descriptors. Imports torch only to count GPUs."""

import contextlib
import os
import sys
from pathlib import Path

from lockstep.errors import UserError
from lockstep.output import counted

KEPT_MEMORY = {"MIMALLOC_PURGE_DELAY": "2000"}
"""PyTorch on Arm ships mimalloc, which by default returns memory to the kernel after 10 ms of disuse, and the next
minibatch page-faults all of it back in. This delay, in milliseconds, keeps it in the process."""

_OPEN_FILES, _OPEN_FILES_A_RANK = 48, 4
"""File descriptors of a rank (imports of Python and torch, the run's files), and additional ones for each peer."""
_DRIVERS = tuple(Path(path) for path in ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))
"""Files that exist when a driver is loaded: NVIDIA, WSL (dxg), AMD (kfd)."""


def keep_memory() -> None:
    """Make the allocator keep freed memory, here and in child processes. Must be called before torch is imported."""
    for name, value in KEPT_MEMORY.items():
        os.environ.setdefault(name, value)


def allow_descriptors(ranks: int) -> None:
    """Raise the limit of open files to the maximum allowed; UserError if that is too low for `ranks` ranks."""
    try:
        import resource
    except ImportError:  # Windows
        return
    # Every rank holds several connections to every other, so many ranks need more than the usual soft limit of 1024.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS refuses its own hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], _OPEN_FILES + _OPEN_FILES_A_RANK * ranks
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise UserError(
            f"ulimit -n {soft}: {counted(ranks, 'rank')} on this machine: {needed} open files are needed for each; "
            f"allow more with `ulimit -n {max(1024, needed)}`, as root or in limits.conf"
        )


def has_gpu_driver() -> bool:
    """Whether a GPU driver may be loaded; answers without importing torch, which takes seconds."""
    # Elsewhere there is no such file to look for, so only torch can tell.
    return sys.platform != "linux" or any(path.exists() for path in _DRIVERS)


def visible_gpus() -> int:
    """The number of GPUs this process may use; honours CUDA_VISIBLE_DEVICES."""
    if not has_gpu_driver():
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def decide_ranks(gpus: int | None, ranks: int | None) -> int:
    """The number of ranks to start: --gpus N, or --ranks N, or one per visible GPU, or one."""
    if gpus is not None and ranks is not None:
        raise UserError(f"--gpus {gpus} and --ranks {ranks}: give one of them; --gpus N starts one rank for each GPU")
    if ranks is not None:
        # --ranks is taken as given, also above the number of GPUs: ranks may share one.
        if ranks < 1:
            raise UserError(f"--ranks {ranks}: at least 1 rank is needed")
        return ranks
    visible = visible_gpus()
    if gpus is None:
        return max(1, visible)
    if gpus < 1:
        raise UserError(f"--gpus {gpus}: at least 1 is needed; use --ranks N for N processes on the CPU")
    if not visible:
        raise UserError(f"--gpus {gpus}: this machine has no GPU; use --ranks {gpus} for as many processes on the CPU")
    if gpus > visible:
        raise UserError(f"--gpus {gpus}: {visible} GPU(s) are visible; use --gpus {visible} or CUDA_VISIBLE_DEVICES")
    return gpus


def threads_per_rank(ranks: int, requested: int | None = None) -> int:
    """Threads per rank: OMP_NUM_THREADS if set, else what the run asks for, else an equal share of the cores."""
    from_user = os.environ.get("OMP_NUM_THREADS", "")
    if from_user.isdecimal() and int(from_user):
        return int(from_user)
    return requested or max(1, cores() // ranks)


def cores() -> int:
    """The number of CPU cores this process may use."""
    # The affinity mask, not cpu_count: a container or `taskset` may allow fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shares(runs: int, ranks: int, at_once: int | None, gpus: int) -> list[dict[str, str]]:
    """The environment variables of each of the runs that train at once: which GPUs and how many threads they use.

    runs: how many there are in all. ranks: of each run. at_once: None = as many as fit on `gpus` GPUs, or on the cores
    if there are none.
    """
    count = min(runs, at_once or max(1, (gpus or cores()) // ranks))
    share = {"OMP_NUM_THREADS": str(threads_per_rank(count * ranks))}
    if not gpus:
        return [share] * count
    names = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))).split(",")[:gpus]
    # Runs get whole sets, so that the ranks of one are not slowed down by another. If there are more runs than sets
    # (--at-once), or more ranks than GPUs, GPUs are shared.
    width = min(ranks, gpus)
    sets = [",".join(names[start : start + width]) for start in range(0, gpus - width + 1, width)]
    return [{**share, "CUDA_VISIBLE_DEVICES": sets[number % len(sets)]} for number in range(count)]
