"""Stop requests: a signal sets a flag, the world agrees on it, saves and exits."""

import contextlib
import os
import signal
import socket
import threading
import time
from types import FrameType
from typing import NoReturn

from lockstep.errors import LockstepError, StoppedOnRequest

PREEMPTED = 1
INTERRUPTED = 2
# Launchers and schedulers signal a process and its group, so one request can arrive twice within moments.
ECHO_SECONDS = 1.0
_ACKNOWLEDGEMENT = b"lockstep: stopping, saving first; ask again to stop at once without saving\n"


class Interrupted(LockstepError):
    """Ctrl-C: the run saved first, and the same command continues it."""

    exit_code = 130


class StopRequest:
    """Handles SIGTERM, SIGUSR1, SIGHUP and Ctrl-C while it is open; a second request ends the process at once.

    Python runs a signal handler in the main thread only, once its current call returns, which can take minutes inside
    a single operation on large tensors. So a thread listens, to which the interpreter passes every signal at once.
    """

    def __init__(self, answers: bool = False) -> None:
        """`answers`: acknowledge the request on stderr."""
        self._answers = answers
        self.flag = 0
        """0, PREEMPTED or INTERRUPTED. INTERRUPTED is the larger: the world agrees on the maximum over ranks."""
        self._noted_at = 0.0
        self._before: dict[int, object] = {}
        self._kinds: dict[int, int] = {}
        self._own: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._fd_before = -1

    def __enter__(self) -> "StopRequest":
        """Install the handlers."""
        self._kinds = {signal.SIGTERM: PREEMPTED, signal.SIGINT: INTERRUPTED}
        if hasattr(signal, "SIGUSR1"):
            self._kinds[signal.SIGUSR1] = PREEMPTED
        # A closed terminal (SIGHUP) is a stop request too, unless nohup made the process ignore it.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            self._kinds[signal.SIGHUP] = PREEMPTED
        # Only the main thread may listen: a training that runs in another one is stopped by its program.
        if threading.current_thread() is threading.main_thread():
            self._listen()
        return self

    def _listen(self) -> None:
        heard, self._own = socket.socketpair()
        self._own.setblocking(False)
        self._thread = threading.Thread(target=self._follow, args=(heard,), name="stop requests", daemon=True)
        self._thread.start()
        # A full buffer means that requests are waiting already.
        self._fd_before = signal.set_wakeup_fd(self._own.fileno(), warn_on_full_buffer=False)
        for number in self._kinds:
            self._before[number] = signal.signal(number, _leave_to_the_thread)

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers, after the requests that came before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if self._own is not None and self._thread is not None:
            signal.set_wakeup_fd(self._fd_before)
            # The thread reads what is left, and then the end of the stream.
            self._own.close()
            self._thread.join(ECHO_SECONDS)

    def _follow(self, heard: socket.socket) -> None:
        with heard:
            while numbers := heard.recv(64):
                for number in numbers:
                    # Other signals of this process are none of ours.
                    if number in self._kinds:
                        self._note(self._kinds[number])

    def _note(self, kind: int) -> None:
        if not self.flag:
            self._noted_at = time.monotonic()
            self.flag = kind
            if self._answers:
                # The terminal may be gone (SIGHUP); the run must be saved all the same. os.write, because a buffered
                # stream may be in use by the code that the signal interrupted.
                with contextlib.suppress(OSError):
                    os.write(2, _ACKNOWLEDGEMENT)
        elif time.monotonic() - self._noted_at > ECHO_SECONDS:
            os._exit(130 if kind == INTERRUPTED else 75)


def _leave_to_the_thread(number: int, frame: FrameType | None) -> None:
    """Do nothing: the thread has the signal already. A handler has to be there, or the signal would end the process."""


def _stop_listening_in_a_fork() -> None:
    # A forked process shares the socket: a signal to it must not count as one to us.
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_listening_in_a_fork)


def leave(flag: int, step: int, saved: str = "saved: the same command continues from there") -> NoReturn:
    """Raise the error that ends a run after the world agreed to stop; `saved`: where a restart begins."""
    if flag == INTERRUPTED:
        raise Interrupted(f"interrupted at step {step:,}; {saved}")
    raise StoppedOnRequest(f"stopped on request at step {step:,}; {saved}")
