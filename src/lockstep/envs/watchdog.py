"""Interrupts code of an environment that does not return. Needs no torch."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_SIGNAL = getattr(signal, "SIGURG", None)
"""Wakes the main thread, even from a sleep. Nothing else uses it: its default is to be ignored. None on Windows."""
_LOOK = 0.5
"""Seconds between two looks at the clock."""


class Hung(Exception):
    """A call took longer than it may."""


class Watchdog:
    """Raises `Hung` in the main thread when a watched call takes too long.

    A call in another thread is not watched, nor one that hangs inside a library without returning to Python: for those,
    workers are watched by their owner, and ranks by their launcher. On Windows, where no thread can interrupt another,
    nothing is.
    """

    def __init__(self) -> None:
        self._deadline = float("inf")
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """Watch the calls of this context."""
        if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._start()
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = float("inf")

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        assert _SIGNAL is not None
        signal.signal(_SIGNAL, self._interrupt)
        self._thread = threading.Thread(target=self._look, name="environment watchdog", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        main = threading.main_thread().ident
        assert main is not None and _SIGNAL is not None
        while threading.main_thread().is_alive():
            time.sleep(_LOOK)
            if time.monotonic() > self._deadline:
                signal.pthread_kill(main, _SIGNAL)

    def _interrupt(self, *_: object) -> None:
        # Somebody else's signal, or a call that has just returned, interrupts nothing.
        if time.monotonic() > self._deadline:
            self._deadline = float("inf")
            raise Hung


@cache
def watchdog() -> Watchdog:
    """The watchdog of this process; its thread starts with the first watched call."""
    return Watchdog()
