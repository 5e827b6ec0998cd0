"""Metrics: accumulated per lane or rank, reduced over the world in a fixed order, written once."""

import errno
import json
import logging
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lockstep.reporting.log_sinks import LoggedRun
from lockstep.reporting.loggers import open_loggers
from lockstep.storage.disk import write_atomically
from lockstep.storage.run_directory import LONGEST_LINE, METRICS, WEIGHTS_HASH
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

# Bytes of a log that are read into memory, or of unwritten lines that are kept there.
_IN_MEMORY = 64 << 20
# Bytes at the end of a longer log in which the resume step is looked for.
_REACH = 256 << 20
# Seconds that the end of a run waits for loggers: on a busy machine W&B alone takes half a minute to open, and a short
# run is over by then. Whoever stops a run does not want to wait that long.
_LONGEST_WAIT = 60.0
_LONGEST_WAIT_IN_A_HURRY = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stat:
    """Sum, count and range of a quantity: enough for its exact mean over any number of ranks."""

    sum: float = 0.0
    count: float = 0
    """The number of observations, or their weight; 0 without observations."""
    minimum: float = math.inf
    maximum: float = -math.inf

    @classmethod
    def of(cls, values: Tensor | Iterable[float]) -> "Stat":
        """The statistics of these values; empty without values."""
        tensor = values.detach() if isinstance(values, Tensor) else torch.tensor(list(values))
        if not tensor.numel():
            return cls()
        # In double precision (MPS has none), and fetched together, so that a GPU is waited for once.
        wide = tensor.to("cpu" if tensor.device.type == "mps" else tensor.device).double()
        total, least, most = torch.stack([wide.sum(), wide.min(), wide.max()]).tolist()
        return cls(total, tensor.numel(), least, most)

    def merge(self, other: "Stat") -> "Stat":
        """The statistics of both; a NaN on either side stays visible."""
        # Comparisons with NaN are false, so that min() and max() would drop one depending on the order.
        least = self.minimum if self.minimum <= other.minimum or math.isnan(self.minimum) else other.minimum
        most = self.maximum if self.maximum >= other.maximum or math.isnan(self.maximum) else other.maximum
        return Stat(self.sum + other.sum, self.count + other.count, least, most)

    @property
    def mean(self) -> float:
        """Sum divided by count; NaN without observations."""
        return self.sum / self.count if self.count else math.nan


Stats = dict[str, Stat]


def merge(parts: Iterable[Stats]) -> Stats:
    """The statistics of all parts, added one by one in the given order."""
    # The order is kept because floating-point addition depends on it.
    total: Stats = {}
    for part in parts:
        for tag, stat in part.items():
            total[tag] = total[tag].merge(stat) if tag in total else stat
    return total


def reduce(parts: list[Stats], world: "World") -> Stats:
    """The statistics of the whole world, on every rank. Called by every rank, with [] if it has nothing to report.

    Parts are added in rank order. Ranks own contiguous lanes, so if each part is a lane's (`exact`), this is lane order
    and the bits do not depend on the number of ranks.
    """
    # As JSON on the control group: Python's floats survive it bit for bit, infinities and NaN included.
    gathered = world.gather_json([as_json(part) for part in parts])
    return merge(from_numbers(part) for rank_parts in gathered for part in rank_parts)


def as_json(stats: Stats) -> dict[str, list[float]]:
    """Sum, count, minimum and maximum of every tag."""
    return {tag: [stat.sum, stat.count, stat.minimum, stat.maximum] for tag, stat in stats.items()}


def from_numbers(numbers: Mapping[str, Iterable[float]]) -> Stats:
    """What `as_json` was given."""
    return {tag: Stat(*of_tag) for tag, of_tag in numbers.items()}


class MetricsLog:
    """Writes log points to metrics.jsonl and to loggers. Rank 0 only; no failure in here stops training."""

    def __init__(self, run: LoggedRun, loggers: Iterable[str] = ()) -> None:
        """Continue a log after the step of a resume, removing later log points, or start a new one.

        `loggers`: the names of those to use.
        """
        self._path = run.directory / METRICS
        self._resume_step = run.resume_step
        # The file's size as far as it is ours; None until the log was cut to the resume step.
        self._end: int | None = None
        # Lines that could not be written yet.
        self._waiting = b""
        self._complained = self._lost = False
        # Cuts the log now, before the run reads it or adds to it.
        self._append(b"")
        self._loggers = open_loggers(loggers, run)

    def write(self, step: int, metrics: Mapping[str, float], fingerprint: str | None = None) -> None:
        """Write one log point; numbers that are not finite become null, which is all that JSON has for them.

        `fingerprint`: the hash of the weights at this step, if it was taken.
        """
        now = time.time()
        values = {tag: _finite(value) for tag, value in metrics.items()}
        # Not among the tags: those are numbers, and the loggers below take nothing else.
        known = {} if fingerprint is None else {WEIGHTS_HASH: fingerprint}
        point = {"step": step, "time": round(now, 3), **known, **values}
        self._append((json.dumps(point, allow_nan=False) + "\n").encode())
        # Loggers have no null: such values are left out there.
        numbers = {tag: value for tag, value in values.items() if value is not None}
        for logger in self._loggers:
            logger.offer(step, now, numbers)

    def rows(self) -> list[dict[str, float]]:
        """The numbers of the log points so far, a dictionary each; of a very long log only the last 64 MB."""
        try:
            lines = [line for _, line in lines_from_end(self._path, LONGEST_LINE, _IN_MEMORY)]
        except OSError:
            return []
        points = [parse_json(line) for line in reversed(lines) if _step_of(line) < math.inf]
        return [{tag: value for tag, value in point.items() if tag != WEIGHTS_HASH} for point in points]

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        # Try again what was refused before: there may be room now.
        if self._waiting:
            self._append(b"")
        try:
            with open_regular(self._path) as file:
                os.fsync(file.fileno())
        except OSError as error:
            self._complain(error)

    def close(self, *, in_a_hurry: bool = False) -> None:
        """Let the loggers finish, and wait for all of them together, up to a minute; in a hurry, up to ten seconds."""
        if self._waiting:
            self._append(b"")
        deadline = time.monotonic() + (_LONGEST_WAIT_IN_A_HURRY if in_a_hurry else _LONGEST_WAIT)
        # All of them first, so that a slow one does not take the time of the others.
        for logger in self._loggers:
            logger.finish()
        for logger in self._loggers:
            logger.close(deadline)

    def _append(self, line: bytes) -> None:
        """Append a line, after those that could not be written before."""
        if self._lost:
            return
        # A disk that stays full must not fill the memory as well: beyond the limit the waiting lines are given up.
        self._waiting = line = (self._waiting if len(self._waiting) < _IN_MEMORY else b"") + line
        try:
            if self._end is None:
                self._end = cut(self._path, self._resume_step)
            with open_to_append(self._path) as file:
                # Cut off what a failed write left behind: half a line would spoil the next one.
                self._end = min(self._end, os.fstat(file.fileno()).st_size)
                file.truncate(self._end)
                # The file is unbuffered, and a disk that is nearly full takes only a part.
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._end += len(line)
            self._waiting = b""
        except OSError as error:
            # From `cut`: the file is not a log of this run. It stays as it is, and is not searched at every log point.
            self._lost = error.errno == errno.EOVERFLOW
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        # Once: a full disk would otherwise print a warning at every log point.
        if not self._complained:
            _log.warning("%s: not written (%s); training continues", self._path, error.strerror or error)
        self._complained = True


def cut(path: Path, last_step: int | None) -> int:
    """Remove the lines after last_step (all if it is None) and an incomplete one, atomically; returns the new size."""
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
    """The same for a long log, of which only the end is read: steps increase, so later ones are there."""
    # Truncating is atomic too, and needs no second copy of a large file.
    for end, line in lines_from_end(path, LONGEST_LINE, _REACH):
        if _step_of(line) <= last_step:
            with open_to_append(path) as file:
                file.truncate(end)
            return end
    raise OSError(errno.EOVERFLOW, f"no log point up to step {last_step} in its last {_REACH >> 20} MB; move it away")


def _step_of(line: bytes) -> float:
    """The step of a complete line; infinity for one that cannot be parsed, so that it is cut off."""
    try:
        step = parse_json(line)["step"] if line.endswith(b"\n") and len(line) <= LONGEST_LINE else None
    except (ValueError, KeyError, TypeError):
        return math.inf
    return step if is_counter(step) else math.inf


def _finite(value: float) -> float | None:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None
