"""TensorBoard and W&B behind a queue: they may fail, hang or be missing, and training neither waits nor stops."""

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from lockstep import failpoints
from lockstep.storage.disk import write_atomically
from lockstep.untrusted import read_regular

# Log points that may wait for a slow logger; further ones are dropped, so that memory stays bounded.
_QUEUE_LENGTH = 1000
# Bytes of the file wandb_id.
_LONGEST_ID = 100
_log = logging.getLogger(__name__)


class Logger(Protocol):
    """Writes log points somewhere; used only by the thread that created it."""

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point; `when` in seconds since 1970."""

    def close(self) -> None:
        """Flush."""


def _pass_over_tensorboard(args: threading.ExceptHookArgs) -> None:
    """A `threading.excepthook` that ignores TensorBoard's own thread.

    Its errors come back from the next call of the writer, and `Background` reports them once, without a traceback.
    """
    if not type(args.thread).__module__.startswith("tensorboard."):
        threading.__excepthook__(args)


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

    def close(self, deadline: float) -> None:
        """Wait for the queued log points, until the deadline (of time.monotonic)."""
        if not self._thread.is_alive():
            return
        try:
            # None tells the thread to finish. The queue may be full, so that this can time out as well.
            self._queue.put(None, timeout=max(deadline - time.monotonic(), 0.001))
        except queue.Full:
            self._complain("hanging")
        self._thread.join(max(deadline - time.monotonic(), 0.0))
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
        except (Exception, SystemExit) as error:  # third-party code may raise anything; W&B exits without a login
            self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, reason: str) -> None:
        if not self._complained:
            _log.warning("%s: %s; training continues without it", self._name, reason.splitlines()[0])
        self._complained = True


class TensorBoard:
    """One series of event files; after a resume, viewers discard what was logged after the checkpoint."""

    def __init__(self, directory: Path, resume_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second of imports, kept off the main thread

        threading.excepthook = _pass_over_tensorboard
        # purge_step makes viewers drop earlier events from that step on; a new run has none to drop.
        used = directory.is_dir() and any(directory.iterdir())
        first = 0 if resume_step is None else resume_step + 1
        self._writer = SummaryWriter(str(directory), purge_step=first if used else None)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, global_step=step, walltime=when)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """One W&B run per run directory, however often it is resumed."""

    def __init__(self, directory: Path, **about: Any) -> None:
        """`about`: further arguments of wandb.init, such as the project."""
        import wandb  # an optional dependency

        # The id is stored with the run, so that a resume continues the same W&B run.
        id_file = directory / "wandb_id"
        if not id_file.exists():
            write_atomically(id_file, secrets.token_hex(8).encode())
        identity = read_regular(id_file, _LONGEST_ID).decode("ascii")
        same = {"id": identity, "resume": "allow", "allow_val_change": True}
        self._run = wandb.init(name=directory.name, dir=str(directory), **same, **about)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point; W&B itself ignores steps that it already has."""
        self._run.log({**values, "time": when}, step=step)

    def close(self) -> None:
        """Flush and finish the W&B run."""
        self._run.finish()
