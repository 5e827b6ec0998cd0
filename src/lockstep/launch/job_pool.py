"""Runs `lockstep` commands as processes of their own, several at once; a stop request reaches all of them."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lockstep.launch import outcome
from lockstep.untrusted import lines_from_end

_PAUSE = 0.1
"""Seconds between two looks at the processes."""
_LONGEST_LINE = 1 << 16
_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, name)
)


@dataclass(frozen=True)
class Job:
    """A command to run: `lockstep ARGUMENTS`, with its output in a file."""

    name: str
    arguments: Sequence[str]
    output: Path


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    job: Job
    code: int
    """The exit code; negative: the signal that killed it."""
    seconds: float
    reason: str
    """Why it failed, in one line; empty after exit code 0."""


class JobPool:
    """Processes, at most one for each slot. While it is open, it handles stop signals by passing them on."""

    def __init__(self, slots: Sequence[Mapping[str, str]]) -> None:
        """`slots`: the additional environment variables of the jobs that run at once."""
        self._free = list(reversed(slots))
        self._running: list[_Process] = []
        self._before: dict[int, object] = {}
        self.stopped_by = 0
        """The signal that asked for a stop; 0 = none. No further job is started after it."""

    def __enter__(self) -> "JobPool":
        """Install the signal handlers."""
        for number in _STOP_SIGNALS:
            # nohup makes a process ignore SIGHUP, and it stays ignored. Only the main thread may handle signals.
            if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) != signal.SIG_IGN:
                with contextlib.suppress(ValueError):
                    self._before[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs, which is only the case after an error here; restore the handlers."""
        for process in self._running:
            process.signal(signal.SIGTERM)
        for process in self._running:
            process.wait()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended]:
        """Run jobs until there are no more, or until a stop is asked for; yields each as it ends.

        The next job is taken only when a slot is free, so that it may depend on how earlier ones ended.
        """
        waiting = iter(jobs)
        with tempfile.TemporaryDirectory(prefix="lockstep-outcomes-") as folder:
            more = True
            while more or self._running:
                while more and self._free and not self.stopped_by:
                    more = self._start_next(waiting, Path(folder))
                more = more and not self.stopped_by
                yield from self._ended()
                if self._running:
                    time.sleep(_PAUSE)

    def _start_next(self, jobs: Iterator[Job], folder: Path) -> bool:
        """Start the next job in a free slot; False if there is none."""
        job = next(jobs, None)
        if job is None:
            return False
        process = _Process(job, self._free.pop(), folder)
        self._running.append(process)
        # A signal may have arrived after the last look at the flag, and before the process was in the list.
        if self.stopped_by:
            process.signal(self.stopped_by)
        return True

    def _ended(self) -> list[Ended]:
        over = [process for process in self._running if not process.alive()]
        for process in over:
            self._running.remove(process)
            self._free.append(process.slot)
        return [process.ending() for process in over]

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        # A second request is passed on, too: it ends the runs at once, without saving.
        self.stopped_by = number
        for process in list(self._running):
            process.signal(number)


class _Process:
    """A job that was started."""

    def __init__(self, job: Job, slot: Mapping[str, str], folder: Path) -> None:
        self.job, self.slot = job, slot
        self._outcome = folder / f"{job.name}.json"
        self._outcome.unlink(missing_ok=True)
        self._since = time.monotonic()
        variables = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", outcome.VARIABLE: str(self._outcome)}
        with job.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lockstep", *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables, **slot},
                start_new_session=True,  # Ctrl-C reaches it once, passed on by the pool, not also from the terminal.
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)  # does nothing if the process has ended

    def ending(self) -> Ended:
        code = self._process.returncode
        return Ended(self.job, code, time.monotonic() - self._since, self._reason(code) if code else "")

    def _reason(self, code: int) -> str:
        error = outcome.read(self._outcome)
        if error is not None:
            return _one_line(str(error))
        if code < 0:
            hint = " (the machine may have run out of memory)" if -code == getattr(signal, "SIGKILL", 0) else ""
            return f"was killed by {signal.Signals(-code).name}{hint}"
        # An error that nobody expected: the last line of its traceback.
        return _last_line(self.job.output) or f"ended with exit code {code}"


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        for _, line in lines_from_end(path, _LONGEST_LINE, _LONGEST_LINE):
            if text := _one_line(line.decode(errors="replace")):
                return text
    return ""


def _one_line(text: str) -> str:
    """The text without line breaks, and without characters that a terminal would obey."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
