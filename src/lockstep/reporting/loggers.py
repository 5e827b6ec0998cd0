"""Loggers behind a queue: they may fail, hang or be missing, and training neither waits nor stops."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from lockstep import failpoints
from lockstep.reporting.log_sinks import CsvFile, LoggedRun, MLflow, TensorBoard, Trackio, WeightsAndBiases

# Log points that may wait for a slow logger; further ones are dropped, so that memory stays bounded.
_QUEUE_LENGTH = 1000
# Seconds that the end of a run waits for a logger before it says so.
_UNNOTICED_WAIT = 3.0
_log = logging.getLogger(__name__)


class Logger(Protocol):
    """Writes log points somewhere; used only by the thread that created it."""

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point; `when` in seconds since 1970."""

    def close(self) -> None:
        """Flush."""


class Background:
    """Runs one logger on a daemon thread; if it fails, the user gets one warning and training continues."""

    def __init__(self, name: str, open_logger: Callable[[], Logger]) -> None:
        self._name = name
        self._open = open_logger
        self._queue: queue.Queue[tuple[int, float, Mapping[str, float]] | None] = queue.Queue(_QUEUE_LENGTH)
        self._complained = False
        self._thread = threading.Thread(target=self._run, name=f"lockstep {name}", daemon=True)
        self._thread.start()

    def offer(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Queue a log point without waiting; it is dropped if the logger has failed or is far behind."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait((step, when, values))
        except queue.Full:
            self._complain("far behind or hanging, points are dropped")

    def finish(self) -> None:
        """Let the thread end after the queued log points, without waiting for it."""
        if not self._thread.is_alive():
            return
        if self._queue.full():
            # The thread may have taken one meanwhile; then there is room as well.
            with contextlib.suppress(queue.Empty):
                self._queue.get_nowait()
        # None tells the thread to finish. Nobody else adds to the queue, so there is room now.
        self._queue.put_nowait(None)

    def close(self, deadline: float) -> None:
        """Wait for the queued log points, until the deadline (of time.monotonic)."""
        if not self._thread.is_alive():
            return
        self.finish()
        # A moment even if others have used up the time: this one may have finished long ago.
        left = max(deadline - time.monotonic(), 0.1)
        self._thread.join(min(left, _UNNOTICED_WAIT))
        if self._thread.is_alive() and left > _UNNOTICED_WAIT:
            _log.warning("%s: is still writing; the run waits for it, at most %.0f s", self._name, left)
            self._thread.join(left - _UNNOTICED_WAIT)
        # A daemon thread: the process can exit although it hangs.
        if self._thread.is_alive():
            self._complain("hanging, left behind")

    def _run(self) -> None:
        try:
            # Opened here: importing and connecting take seconds, which training does not wait for.
            logger = self._open()
            while (point := self._queue.get()) is not None:
                failpoints.reach("logger")
                logger.write(*point)
            logger.close()
        except ModuleNotFoundError as error:
            self._complain(f"its package is not installed: pip install {error.name}")
        except (Exception, SystemExit) as error:  # third-party code may raise anything; W&B exits without a login
            self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, reason: str) -> None:
        if not self._complained:
            _log.warning("%s: %s; training continues without it", self._name, reason.splitlines()[0])
        self._complained = True


_LOGGERS: Mapping[str, tuple[str, Callable[[LoggedRun], Logger]]] = {
    "tensorboard": ("TensorBoard", TensorBoard),
    "wandb": ("W&B", WeightsAndBiases),
    "trackio": ("trackio", Trackio),
    "mlflow": ("MLflow", MLflow),
    "csv": ("metrics.csv", CsvFile),
}
"""By the name in `--loggers`: what it is called, and how it is opened."""


def open_loggers(names: Iterable[str], run: LoggedRun) -> list[Background]:
    """Open these loggers, each on a thread of its own."""
    return [Background(_LOGGERS[name][0], partial(_LOGGERS[name][1], run)) for name in names]
