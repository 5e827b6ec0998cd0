"""A rank's own process: its set-up, its exit, and the traceback it leaves for the launcher."""

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
"""The environment variable that says how often to halve micro-batches, because memory ran out."""
ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""The environment variable that holds the path for a rank's traceback, for torchrun and for our launcher."""

_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def halvings() -> int:
    """How often this rank has to halve its micro-batches."""
    return int(os.environ.get(HALVINGS_VARIABLE, "0"))


def enter_rank() -> None:
    """Set up a launched rank, first of all: die with the launcher, send heartbeats, write tracebacks to a file."""
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    die_with_parent(int(launcher) if launcher else None)
    # torchrun sets none, and then nobody would read it.
    if heartbeat.VARIABLE in os.environ:
        heartbeat.keep_beating(heartbeat.Heartbeat.of_this_rank())
    sys.excepthook = _leave_traceback


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends, so that no rank outlives its launcher (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # If the parent died before the call above, no signal will ever come. On Windows a virtual environment's interpreter
    # is a process between the two.
    if parent is not None and sys.platform != "win32" and os.getppid() != parent:
        os._exit(3)


def leave(code: int) -> NoReturn:
    """Exit with a code; a rank skips the interpreter's teardown.

    A process group's thread that releases a tensor during that teardown aborts the process (pytorch/pytorch#190489),
    and the launcher would take the abort for a crash.
    """
    if environment.launched():
        # os._exit flushes nothing.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _leave_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write an uncaught exception to the launcher's error file; the launcher shows only the root cause of all ranks."""
    if issubclass(kind, KeyboardInterrupt):
        # Asked for by the user, so there is no traceback to show.
        leave(130)
    path = os.environ.get(ERROR_FILE_VARIABLE)
    if path:
        now = time.time()
        lines = "".join(traceback.format_exception(kind, error, trace))
        extra = {"py_callstack": lines, "timestamp": str(int(now)), "time": now}
        Path(path).write_text(json.dumps({"message": {"message": f"{kind.__name__}: {error}", "extraInfo": extra}}))
    # Our launcher prints the file; under torchrun, or without a launcher, the traceback has to be printed here.
    if not path or LAUNCHER_VARIABLE not in os.environ:
        # torch replaces sys.stderr by a buffer, which os._exit would lose; sys.__stderr__ is the real one.
        traceback.print_exception(kind, error, trace, file=sys.__stderr__)
    leave(1)
