"""Starting ranks: how many, with how many threads, and what each of them does first. Needs no torch to be imported."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from lockstep.core import pulse
from lockstep.core.distributed import environment
from lockstep.core.distributed.machines import Machines
from lockstep.core.errors import UserError

LAUNCHER_VARIABLE = "LOCKSTEP_LAUNCHER"
"""The environment variable that holds the launcher's process id."""
HALVINGS_VARIABLE = "LOCKSTEP_HALVINGS"
"""The environment variable that says how often micro-batches are halved, because memory ran out."""
KEPT_MEMORY = {"MIMALLOC_PURGE_DELAY": "2000"}
"""Where PyTorch brings this allocator (on Arm), it gives back what was not used for 10 ms, and the next minibatch gets
it anew page by page; so long, in milliseconds, it stays with a rank."""
ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""Where PyTorch's launchers, ours included, look for the traceback of a rank."""

_OPEN_FILES, _OPEN_FILES_A_RANK = 48, 4
"""What a rank opens by itself (Python and torch while they are imported, the run's files), and for each peer."""
_SET_PARENT_DEATH_SIGNAL = 1
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


def launch(
    argv: Sequence[str],
    ranks: int,
    *,
    machines: Machines | None = None,
    secret: str | None = None,
    threads: int | None = None,
    max_restarts: int = 3,
    timeout: float = 600.0,
    smaller: Callable[[int], str | None] = lambda halvings: None,
    modules: Sequence[str] = (),
) -> int:
    """Run `lockstep ARGV` on so many ranks of this machine, restarting after a crash; returns the exit code.

    secret: what the launchers of all machines know; None where there is one machine.
    smaller: how the user would ask for micro-batches halved so many times; None where that cannot be.
    modules: what every rank imports first.
    """
    from lockstep.core.distributed import fork_server
    from lockstep.core.distributed.launcher import run_ranks

    command, threads = ["-m", "lockstep", *argv], threads_per_rank(ranks, threads)
    with fork_server.opened(command, modules, threads) as opened:
        return run_ranks(
            [sys.executable, *command],
            ranks,
            machines=machines,
            secret=secret,
            threads=threads,
            max_restarts=max_restarts,
            timeout=timeout,
            smaller=smaller,
            fork_server=opened,
        )


def halvings() -> int:
    """How often this rank is to halve its micro-batches."""
    return int(os.environ.get(HALVINGS_VARIABLE, "0"))


def enter_rank() -> None:
    """What a launched rank does before anything else: it dies with its launcher, beats, and leaves its traceback."""
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    die_with_parent(int(launcher) if launcher else None)
    if pulse.VARIABLE in os.environ:
        pulse.keep_beating(pulse.Pulse.of_this_rank())
    sys.excepthook = _leave_traceback


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends, so that no rank outlives its launcher (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # A parent that died before the line above sends no signal.
    if parent is not None and os.getppid() != parent:
        os._exit(3)


def leave(code: int) -> NoReturn:
    """End this process with an exit code; a rank does so without the interpreter's teardown.

    Threads of a process group that let go of a tensor during that teardown abort the process (pytorch/pytorch#190489),
    and an abort would be taken for a crash.
    """
    if environment.launched():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _leave_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write an uncaught exception where the launcher looks; it shows the first one of all ranks, once."""
    if issubclass(kind, KeyboardInterrupt):
        leave(130)
    path = os.environ.get(ERROR_FILE_VARIABLE)
    if path:
        now = time.time()
        lines = "".join(traceback.format_exception(kind, error, trace))
        extra = {"py_callstack": lines, "timestamp": str(int(now)), "time": now}
        Path(path).write_text(json.dumps({"message": {"message": f"{kind.__name__}: {error}", "extraInfo": extra}}))
    if not path or LAUNCHER_VARIABLE not in os.environ:
        # Not to sys.stderr: torch's own hook has put a buffer there, which is lost with the process.
        traceback.print_exception(kind, error, trace, file=sys.__stderr__)
    leave(1)
