"""Metrics: counted per lane or rank, added over the world in one order, written once."""

import errno
import json
import logging
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lockstep.reporting.loggers import Background, TensorBoard, WeightsAndBiases
from lockstep.storage.disk import write_atomically
from lockstep.untrusted import (
    is_counter,
    lines_from_end,
    open_regular,
    open_to_append,
    parse_json,
    read_regular,
)

if TYPE_CHECKING:
    from lockstep.distributed.world import World

METRICS = "metrics.jsonl"
LONGEST_LINE = 1 << 20
_IN_MEMORY = 64 << 20
_REACH = 256 << 20
_LONGEST_WAIT = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stat:
    """What is known of a quantity: enough for the exact mean over any number of ranks."""

    sum: float = 0.0
    count: float = 0
    """Observations, or their weight; 0 where there was nothing to observe."""
    minimum: float = math.inf
    maximum: float = -math.inf

    @classmethod
    def of(cls, values: Tensor | Iterable[float]) -> "Stat":
        """The statistics of these values; of none, the empty one."""
        tensor = values.detach() if isinstance(values, Tensor) else torch.tensor(list(values))
        if not tensor.numel():
            return cls()
        # In double precision and fetched in one go: a GPU is waited for once.
        wide = tensor.to("cpu" if tensor.device.type == "mps" else tensor.device).double()
        total, least, most = torch.stack([wide.sum(), wide.min(), wide.max()]).tolist()
        return cls(total, tensor.numel(), least, most)

    def merge(self, other: "Stat") -> "Stat":
        """Both together; a NaN on either side stays visible."""
        least = self.minimum if self.minimum <= other.minimum or math.isnan(self.minimum) else other.minimum
        most = self.maximum if self.maximum >= other.maximum or math.isnan(self.maximum) else other.maximum
        return Stat(self.sum + other.sum, self.count + other.count, least, most)

    @property
    def mean(self) -> float:
        """Sum by count; NaN where nothing was observed."""
        return self.sum / self.count if self.count else math.nan


Stats = dict[str, Stat]


def merge(parts: Iterable[Stats]) -> Stats:
    """All parts together, added one by one in their order."""
    total: Stats = {}
    for part in parts:
        for tag, stat in part.items():
            total[tag] = total[tag].merge(stat) if tag in total else stat
    return total


def reduce(parts: list[Stats], world: "World") -> Stats:
    """The statistics of the whole world, on every rank. Called by every rank, with [] where there is nothing.

    Parts are added in rank order: where each is a lane's, the bits do not depend on which rank held which lane.
    """
    mine = [{tag: [s.sum, s.count, s.minimum, s.maximum] for tag, s in part.items()} for part in parts]
    gathered = [part for rank_parts in world.gather_json(mine) for part in rank_parts]
    return merge({tag: Stat(*numbers) for tag, numbers in part.items()} for part in gathered)


class MetricsLog:
    """Writes log points to metrics.jsonl, TensorBoard and W&B. Rank 0 only; no trouble in here stops the training."""

    def __init__(self, directory: Path, resume_step: int | None, *, wandb: Mapping[str, Any] | None = None) -> None:
        """Go on after resume_step, or start anew where it is None: what was logged later is cut off.

        `wandb`: what W&B is told of the run; None where it is not to know.
        """
        self._path = Path(directory) / METRICS
        self._resume_step = resume_step
        self._end: int | None = None
        self._waiting = b""
        """Lines that the disk has not taken yet."""
        self._complained = self._lost = False
        self._append(b"")
        self._loggers = [Background("TensorBoard", lambda: TensorBoard(Path(directory) / "tensorboard", resume_step))]
        if wandb is not None:
            self._loggers.append(Background("W&B", lambda: WeightsAndBiases(Path(directory), **wandb)))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """One log point; numbers that are not finite are written as null."""
        now = time.time()
        values = {tag: _finite(value) for tag, value in metrics.items()}
        self._append((json.dumps({"step": step, "time": round(now, 3), **values}, allow_nan=False) + "\n").encode())
        numbers = {tag: value for tag, value in values.items() if value is not None}
        for logger in self._loggers:
            logger.offer(step, now, numbers)

    def rows(self) -> list[dict[str, float]]:
        """What was logged so far, a dictionary for each log point; of a very long log, its end."""
        try:
            lines = [line for _, line in lines_from_end(self._path, LONGEST_LINE, _IN_MEMORY)]
        except OSError:
            return []
        return [parse_json(line) for line in reversed(lines) if _step_of(line) < math.inf]

    def sync(self) -> None:
        """Wait until the disk has what was written."""
        if self._waiting:
            self._append(b"")
        try:
            with open_regular(self._path) as file:
                os.fsync(file.fileno())
        except OSError as error:
            self._complain(error)

    def close(self) -> None:
        """Let the loggers finish, and wait no longer than ten seconds for all of them."""
        if self._waiting:
            self._append(b"")
        deadline = time.monotonic() + _LONGEST_WAIT
        for logger in self._loggers:
            logger.close(deadline)

    def _append(self, line: bytes) -> None:
        """Add a line behind the last whole one; those that a full disk refused come before it once there is room."""
        if self._lost:
            return
        self._waiting = line = (self._waiting if len(self._waiting) < _IN_MEMORY else b"") + line
        try:
            if self._end is None:
                self._end = cut(self._path, self._resume_step)
            with open_to_append(self._path) as file:
                self._end = min(self._end, os.fstat(file.fileno()).st_size)
                file.truncate(self._end)
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._end += len(line)
            self._waiting = b""
        except OSError as error:
            # A file that is no log of this run stays as it is: looking for its end at every log point would take long.
            self._lost = error.errno == errno.EOVERFLOW
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            _log.warning("%s: not written (%s); training goes on", self._path, error.strerror or error)
        self._complained = True


def cut(path: Path, last_step: int | None) -> int:
    """Drop the lines after last_step (all of them for None) and a torn one, in one move; returns the new size."""
    if last_step is None or not os.path.lexists(path):
        write_atomically(path, b"")
        return 0
    if path.lstat().st_size > _IN_MEMORY:
        return _cut_end(path, last_step)
    lines = read_regular(path, _IN_MEMORY).splitlines(keepends=True)
    kept = b"".join(line for line in lines if _step_of(line) <= last_step)
    write_atomically(path, kept)
    return len(kept)


def _cut_end(path: Path, last_step: int) -> int:
    """The same for a long log, of which no more is read than its end: steps rise, so what is too late stands there."""
    for end, line in lines_from_end(path, LONGEST_LINE, _REACH):
        if _step_of(line) <= last_step:
            with open_to_append(path) as file:
                file.truncate(end)
            return end
    raise OSError(errno.EOVERFLOW, f"no log point up to step {last_step} in its last {_REACH >> 20} MB: move it away")


def _step_of(line: bytes) -> float:
    """The step of a whole line; infinity for one that cannot be read, so that it is cut off."""
    try:
        step = parse_json(line)["step"] if line.endswith(b"\n") and len(line) <= LONGEST_LINE else None
    except (ValueError, KeyError, TypeError):
        return math.inf
    return step if is_counter(step) else math.inf


def _finite(value: float) -> float | None:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None
