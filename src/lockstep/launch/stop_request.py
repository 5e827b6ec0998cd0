"""Stop requests: a signal sets a flag, the world agrees on it at the next update, saves and exits."""

import contextlib
import os
import signal
import time
from types import FrameType

from lockstep.errors import LockstepError, StoppedOnRequest

PREEMPTED = 1
INTERRUPTED = 2
# Launchers and schedulers signal a process and its group, so one request can arrive twice within moments.
ECHO_SECONDS = 1.0
_ACKNOWLEDGEMENT = b"lockstep: stopping after this update, then saving; ask again to stop at once without saving\n"


class Interrupted(LockstepError):
    """Ctrl-C: the run saved first, and the same command continues it."""

    exit_code = 130


class StopRequest:
    """Handles SIGTERM, SIGUSR1, SIGHUP and Ctrl-C while it is open; a second request ends the process at once."""

    def __init__(self, answers: bool = False) -> None:
        """`answers`: acknowledge the request on stderr."""
        self._answers = answers
        self.flag = 0
        """0, PREEMPTED or INTERRUPTED. INTERRUPTED is the larger: the world agrees on the maximum over ranks."""
        self._noted_at = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        """Install the handlers."""
        kinds = {signal.SIGTERM: PREEMPTED, signal.SIGINT: INTERRUPTED}
        if hasattr(signal, "SIGUSR1"):
            kinds[signal.SIGUSR1] = PREEMPTED
        # A closed terminal (SIGHUP) is a stop request too, unless nohup made the process ignore it.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            kinds[signal.SIGHUP] = PREEMPTED
        self._kinds = kinds
        for number in kinds:
            # Only the main thread may listen: a training that runs in another one is stopped by its program.
            with contextlib.suppress(ValueError):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _: FrameType | None) -> None:
        # Little more than a flag: a handler may run at any instruction, even in the middle of a save or a collective.
        kind = self._kinds[signal.Signals(number)]
        if not self.flag:
            self.flag, self._noted_at = kind, time.monotonic()
            if self._answers:
                # The terminal may be gone (SIGHUP); the run must be saved all the same. os.write, because a buffered
                # stream may be in use by the code that the signal interrupted.
                with contextlib.suppress(OSError):
                    os.write(2, _ACKNOWLEDGEMENT)
        elif time.monotonic() - self._noted_at > ECHO_SECONDS:
            os._exit(130 if kind == INTERRUPTED else 75)


def leave(flag: int, step: int) -> None:
    """Raise the error that ends a run after the world agreed to stop and saved."""
    if flag == INTERRUPTED:
        raise Interrupted(f"interrupted at step {step:,}; saved: the same command continues from there")
    raise StoppedOnRequest(f"stopped on request at step {step:,}; saved: the same command continues from there")
