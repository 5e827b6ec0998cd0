"""Runs with planted faults, for fault_campaign.py: started through the command, timed, and searched for leftovers."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights

PATIENCE = 900.0
FORK_SERVER = "lockstep.launch.fork_server"
RESTARTS = "restarting all ranks"
_KILLED_AT = re.compile(r"at step ([\d,]+)")
_RESUMED = re.compile(r"resumed from step-(\d+)")


class Going:
    """A command that was started; its output is read as it comes."""

    def __init__(
        self, words: list[str], run: Path, faults: str = "", prefix: Sequence[str] = (), **variables: str
    ) -> None:
        """`prefix`: what to put before the command."""
        self.run = run
        self.lines: list[tuple[float, str]] = []
        """What it printed, and when."""
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "lockstep", *words],
            env={**os.environ, "LOCKSTEP_FAULTS": faults, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        """Wait for a condition; False where the run ended first."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._reader.join(5)
                return holds()
            time.sleep(0.02)
        return True

    def wait_for_points(self, count: int) -> bool:
        """Wait until the run has so many log points."""
        log = self.run / "metrics.jsonl"
        return self.wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= count)

    def said_since(self, when: float, pattern: str) -> float:
        """When a line with a pattern was first printed after some moment; 0 if it was not."""
        return next((at for at, line in list(self.lines) if at > when and re.search(pattern, line)), 0.0)

    def family(self) -> list[psutil.Process]:
        """All processes that the launcher has started, and those that they have."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> list[psutil.Process]:
        """The ranks in their order: they and the fork server that they come from lead groups, nothing else does."""
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                is_server = process.ppid() == self.process.pid and FORK_SERVER in process.cmdline()
                if os.getpgid(process.pid) == process.pid and not is_server:
                    found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def ended(self) -> "Ended":
        """Wait for the end."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            code = self.process.wait()
        seconds = time.monotonic() - self.began
        self._reader.join(10)
        return Ended(code, self.lines, seconds, _left_behind(self.run, self.process.pid))


@dataclass
class Ended:
    """How a run ended."""

    code: int
    lines: list[tuple[float, str]]
    seconds: float
    left: list[str]
    """What it left behind and should not have."""

    @property
    def text(self) -> str:
        """What it printed."""
        return "\n".join(line for _, line in self.lines)

    def falls(self) -> list[tuple[int, int]]:
        """The step of each failure, and that of the checkpoint which was taken up after it; 0 for none."""
        found: list[tuple[int, int]] = []
        for _, line in self.lines:
            if RESTARTS in line and (place := _KILLED_AT.search(line)):
                found.append((int(place[1].replace(",", "")), 0))
            elif (checkpoint := _RESUMED.search(line)) and found:
                found[-1] = found[-1][0], int(checkpoint[1])
        return found


@dataclass
class Bench:
    """One workload's short run in exact mode: how it is started, and what it ends in when nothing happens."""

    workload: str
    updates: int = 12
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="lockstep-faults-")))
    runs: int = 0

    def __post_init__(self) -> None:
        self.stride = 0
        ended, run = self.train(ranks=1)
        assert ended.code == 0, ended.text
        self.steps, self.hash = [point["step"] for point in points_of(run)], final_hash(run)
        self.updates, self.stride = len(self.steps), self.steps[-1] // len(self.steps)
        times = [point["time"] for point in points_of(run)]
        self.pace = (times[-1] - times[0]) / (len(times) - 1)
        """Seconds an update."""

    def words(self, name: str, ranks: int, *more: str) -> list[str]:
        """The words of one run; a checkpoint every second update."""
        every = 2 * self.stride
        sizes = ["--max-updates", str(self.updates), "--checkpoint-every", str(every), "--eval-every", "0"]
        where = ["--device", "cpu", "--runs-dir", str(self.folder), "--run-name", name, "--ranks", str(ranks)]
        return ["train", self.workload, "--preset", "debug", "--sync", "exact", *sizes, *where, *more]

    def train(
        self,
        ranks: int = 2,
        faults: str = "",
        *more: str,
        name: str = "",
        prefix: Sequence[str] = (),
        meanwhile: Callable[[Going], None] = lambda going: None,
        **variables: str,
    ) -> tuple[Ended, Path]:
        """Run to the end, with faults; `meanwhile` gets the run while it goes on."""
        self.runs += 1
        name = name or f"{self.workload}-{self.runs}"
        going = Going(self.words(name, ranks, *more), self.folder / name, faults, prefix, **variables)
        meanwhile(going)
        return going.ended(), self.folder / name

    def ends_alike(self, run: Path) -> bool:
        """Whether a run ended in the undisturbed weights, with every log point once."""
        logged = [point["step"] for point in points_of(run)]
        return (run / "final").exists() and logged == self.steps and final_hash(run) == self.hash

    def redone(self, ended: Ended) -> list[int]:
        """How many updates were done again after each failure of a run."""
        return [sum(back < step <= place for step in self.steps) for place, back in ended.falls()]

    def close(self) -> None:
        """Remove what the runs left on purpose."""
        shutil.rmtree(self.folder, ignore_errors=True)


def points_of(run: Path) -> list[dict[str, Any]]:
    """The log points of a run."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def final_hash(run: Path) -> str:
    """The hash of a run's final weights."""
    return weights_hash(load_weights(run / "final")[0])


def _left_behind(run: Path, launcher: int) -> list[str]:
    """Processes of a run that outlived it by five seconds, a lock that is still signed, unfinished files.

    A port that is still listened on would need one of those processes.
    """
    deadline = time.monotonic() + 5.0
    while (alive := _processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [f"process {pid}" for pid in alive]
    if (run / "final").exists():
        lock = run / "lock.json"
        left += ["lock"] if lock.exists() and lock.read_text() else []
        left += [path.name for path in run.rglob(".tmp-*")]
        left += [path.name for path in Path(tempfile.gettempdir()).glob(f"lockstep-launcher-{launcher}-*")]
    return left


def _processes_of(run: Path) -> list[int]:
    words = [str(run.parent), run.name]
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        line = process.info["cmdline"] or []
        if all(word in line for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found
