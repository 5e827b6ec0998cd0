"""A rank's own process: what it does first, how it ends, and what it leaves behind for its launcher."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from lockstep.launch import environment, heartbeat

LAUNCHER_VARIABLE = "LOCKSTEP_LAUNCHER"
"""The environment variable that holds the launcher's process id."""
HALVINGS_VARIABLE = "LOCKSTEP_HALVINGS"
"""The environment variable that says how often micro-batches are halved, because memory ran out."""
ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""Where PyTorch's launchers, ours included, look for the traceback of a rank."""

_SET_PARENT_DEATH_SIGNAL = 1


def halvings() -> int:
    """How often this rank is to halve its micro-batches."""
    return int(os.environ.get(HALVINGS_VARIABLE, "0"))


def enter_rank() -> None:
    """What a launched rank does before anything else: it dies with its launcher, beats, and leaves its traceback."""
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    die_with_parent(int(launcher) if launcher else None)
    if heartbeat.VARIABLE in os.environ:
        heartbeat.keep_beating(heartbeat.Heartbeat.of_this_rank())
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
