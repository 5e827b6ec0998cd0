"""TensorBoard and W&B behind a queue: they may fail, hang or be missing, and the training neither waits nor stops."""

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

_QUEUE_LENGTH = 1000
_LONGEST_ID = 100
_log = logging.getLogger(__name__)


class Logger(Protocol):
    """Where log points go; lives on the thread that opened it."""

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Take one log point."""

    def close(self) -> None:
        """Flush."""


def _pass_over_tensorboard(args: threading.ExceptHookArgs) -> None:
    """Say nothing of TensorBoard's own thread: what it fails of comes back from its next call, and is told once."""
    if not type(args.thread).__module__.startswith("tensorboard."):
        threading.__excepthook__(args)


class Background:
    """Runs one logger on a daemon thread; whatever it does, the user is told once and the training goes on."""

    def __init__(self, name: str, open_logger: Callable[[], Logger]) -> None:
        self._name = name
        self._open = open_logger
        self._queue: queue.Queue[tuple[int, float, Mapping[str, float]] | None] = queue.Queue(_QUEUE_LENGTH)
        self._complained = False
        self._thread = threading.Thread(target=self._run, name=f"lockstep {name}", daemon=True)
        self._thread.start()

    def offer(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Hand over a log point; it is dropped where the logger has failed or is far behind."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait((step, when, values))
        except queue.Full:
            self._complain("far behind or hanging, points are dropped")

    def close(self, deadline: float) -> None:
        """Wait for what was handed over, until the deadline (of time.monotonic)."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put(None, timeout=max(deadline - time.monotonic(), 0.001))
        except queue.Full:
            self._complain("hanging")
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            self._complain("hanging, left behind")

    def _run(self) -> None:
        try:
            logger = self._open()
            while (point := self._queue.get()) is not None:
                failpoints.reach("logger")
                logger.write(*point)
            logger.close()
        except (Exception, SystemExit) as error:  # anything a foreign library may think of
            self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, reason: str) -> None:
        if not self._complained:
            _log.warning("%s: %s; training goes on without it", self._name, reason.splitlines()[0])
        self._complained = True


class TensorBoard:
    """One series of event files; on a resume the viewer is told to forget what came after the checkpoint."""

    def __init__(self, directory: Path, resume_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second of imports, kept off the main thread

        threading.excepthook = _pass_over_tensorboard
        used = directory.is_dir() and any(directory.iterdir())
        first = 0 if resume_step is None else resume_step + 1
        self._writer = SummaryWriter(str(directory), purge_step=first if used else None)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Take one log point."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, global_step=step, walltime=when)

    def close(self) -> None:
        """Flush."""
        self._writer.close()


class WeightsAndBiases:
    """One W&B run for one run directory, however often it is resumed."""

    def __init__(self, directory: Path, **about: Any) -> None:
        """`about`: what W&B is told of the run, as its project."""
        import wandb

        remembered = directory / "wandb_id"
        if not remembered.exists():
            write_atomically(remembered, secrets.token_hex(8).encode())
        identity = read_regular(remembered, _LONGEST_ID).decode("ascii")
        same = {"id": identity, "resume": "allow", "allow_val_change": True}
        self._run = wandb.init(name=directory.name, dir=str(directory), **same, **about)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Take one log point; W&B itself passes over steps that it already has."""
        self._run.log({**values, "time": when}, step=step)

    def close(self) -> None:
        """Flush."""
        self._run.finish()
