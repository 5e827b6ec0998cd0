"""What ranks may use of this machine: GPUs, threads, memory. Needs no torch until a GPU is asked for."""

import contextlib
import os
import sys
from pathlib import Path

from lockstep.errors import UserError

KEPT_MEMORY = {"MIMALLOC_PURGE_DELAY": "2000"}
"""Where PyTorch brings this allocator (on Arm), it gives back what was not used for 10 ms, and the next minibatch gets
it anew page by page; so long, in milliseconds, it stays with a rank."""

_OPEN_FILES, _OPEN_FILES_A_RANK = 48, 4
"""What a rank opens by itself (Python and torch while they are imported, the run's files), and for each peer."""
_DRIVERS = tuple(Path(path) for path in ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))
"""What the drivers of NVIDIA (also under Windows' Linux) and AMD show."""


def keep_memory() -> None:
    """Keep what was allocated, in this process and those it starts; of use before torch is imported."""
    for name, value in KEPT_MEMORY.items():
        os.environ.setdefault(name, value)


def allow_descriptors(ranks: int) -> None:
    """Take as many descriptors as the system gives; UserError where so many ranks could not do with them."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS may allow fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], _OPEN_FILES + _OPEN_FILES_A_RANK * ranks
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise UserError(
            f"ulimit -n {soft}: {ranks} rank(s) on this machine need {needed} open files each; "
            f"allow more with `ulimit -n {max(1024, needed)}`, as root or in limits.conf"
        )


def has_gpu_driver() -> bool:
    """Whether a GPU's driver is loaded; tells without importing torch, which takes seconds."""
    return sys.platform != "linux" or any(path.exists() for path in _DRIVERS)


def visible_gpus() -> int:
    """The NVIDIA GPUs that this process may use; honours CUDA_VISIBLE_DEVICES."""
    if not has_gpu_driver():
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def decide_ranks(gpus: int | None, ranks: int | None) -> int:
    """The number of ranks to start: --gpus N, or --ranks N, or one per visible GPU, or one."""
    if gpus is not None and ranks is not None:
        raise UserError(f"--gpus {gpus} and --ranks {ranks}: give one of them; --gpus N starts one rank for each GPU")
    if ranks is not None:
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


def threads_per_rank(ranks: int, wanted: int | None = None) -> int:
    """Threads of each rank: what the user set, else what the run wants, else the cores shared out."""
    fixed = os.environ.get("OMP_NUM_THREADS", "")
    if fixed.isdecimal() and int(fixed):
        return int(fixed)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return wanted or max(1, cores // ranks)
