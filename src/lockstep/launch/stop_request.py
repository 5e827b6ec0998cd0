"""Requests to stop: a signal sets a flag, the world agrees on it at the next update, saves and leaves."""

import contextlib
import os
import signal
import time
from types import FrameType

from lockstep.errors import LockstepError, StoppedOnRequest

PREEMPTED = 1
INTERRUPTED = 2
# Launchers and schedulers signal a process and its group: the same request, arriving more than once.
ECHO_SECONDS = 1.0
_HEARD = b"lockstep: stopping after this update, then saving; ask again to end at once without saving\n"


class Interrupted(LockstepError):
    """Ctrl-C: the run saved first, and the same command goes on."""

    exit_code = 130


class StopRequest:
    """Listens for SIGTERM, SIGUSR1, SIGHUP and Ctrl-C while it is open; a second request ends the process at once."""

    def __init__(self, answers: bool = False) -> None:
        """`answers`: say on stderr that the request was heard."""
        self._answers = answers
        self.flag = 0
        self._noted = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        """Install the handlers."""
        kinds = {signal.SIGTERM: PREEMPTED, signal.SIGINT: INTERRUPTED}
        if hasattr(signal, "SIGUSR1"):
            kinds[signal.SIGUSR1] = PREEMPTED
        # A terminal that is closed is such a request, too, but not where nohup has seen to it that nobody hears of it.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            kinds[signal.SIGHUP] = PREEMPTED
        self._kinds = kinds
        for number in kinds:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _: FrameType | None) -> None:
        # Hardly more than a flag here: a handler runs at any instruction, also in the middle of a save or a collective.
        kind = self._kinds[signal.Signals(number)]
        if not self.flag:
            self.flag, self._noted = kind, time.monotonic()
            if self._answers:
                # Whoever asks may have taken the terminal with him; the run is to be saved all the same.
                with contextlib.suppress(OSError):
                    os.write(2, _HEARD)
        elif time.monotonic() - self._noted > ECHO_SECONDS:
            os._exit(130 if kind == INTERRUPTED else 75)


def leave(flag: int, step: int) -> None:
    """Raise what ends a run that the world agreed to stop."""
    if flag == INTERRUPTED:
        raise Interrupted(f"interrupted at step {step:,}; saved: the same command goes on from there")
    raise StoppedOnRequest(f"stopped on request at step {step:,}; saved: the same command goes on from there")
