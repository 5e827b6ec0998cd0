"""Runs with planted faults, for fault_campaign.py: started through the command, timed, and searched for leftovers."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lockstep.core.storage.checkpoint import weights_hash
from lockstep.core.storage.weights import load_weights

PATIENCE = 900.0
_KILLED_AT = re.compile(r"at step ([\d,]+)")
_RESUMED = re.compile(r"resumed from step-(\d+)")


@dataclass
class Ended:
    """How a run ended."""

    code: int
    lines: list[tuple[float, str]]
    """What it printed, and when, in seconds since its start."""
    seconds: float
    left: list[str]
    """What it left behind and should not have."""

    @property
    def text(self) -> str:
        """What it printed."""
        return "\n".join(line for _, line in self.lines)

    def recoveries(self) -> list[float]:
        """Seconds from each failure that the launcher reports to the next sign of progress."""
        failed = [when for when, line in self.lines if "restarting all ranks" in line]
        steps = [when for when, line in self.lines if line.startswith("step ")]
        return [min((step - when for step in steps if step > when), default=0.0) for when in failed]

    def redone(self) -> list[int]:
        """Steps between the place of each failure and the checkpoint that was taken up after it."""
        places = []
        for _, line in self.lines:
            if "restarting all ranks" in line and (found := _KILLED_AT.search(line)):
                places.append(int(found[1].replace(",", "")))
            elif (found := _RESUMED.search(line)) and places:
                places[-1] -= int(found[1])
        return places


@dataclass
class Bench:
    """One workload's short run in exact mode: how it is started, and what it ends in when nothing happens."""

    workload: str
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="lockstep-faults-")))
    updates: int = 12
    runs: int = 0

    def __post_init__(self) -> None:
        self.stride, self.hash = 0, ""
        ended, run = self.train(ranks=1)
        assert ended.code == 0, ended.text
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.updates, self.stride, self.hash = len(steps), steps[-1] // len(steps), final_hash(run)

    def words(self, name: str, ranks: int, *more: str) -> list[str]:
        """The words of one run; a checkpoint every second update."""
        every = 2 * self.stride
        sizes = ["--max-updates", str(self.updates), "--checkpoint-every", str(every), "--eval-every", "0"]
        where = ["--runs-dir", str(self.folder), "--run-name", name, "--ranks", str(ranks)]
        return ["train", self.workload, "--preset", "debug", "--sync", "exact", *sizes, *where, *more]

    def train(
        self,
        ranks: int = 2,
        faults: str = "",
        *more: str,
        name: str = "",
        meanwhile: Callable[[subprocess.Popen, Path], None] | None = None,
    ) -> tuple[Ended, Path]:
        """Run to the end, with faults; `meanwhile` gets the process and its run's directory while it goes on."""
        self.runs += 1
        name = name or f"{self.workload}-{self.runs}"
        return execute(self.words(name, ranks, *more), faults, self.folder / name, meanwhile), self.folder / name

    def ends_alike(self, run: Path) -> bool:
        """Whether a run ended in the undisturbed weights, with every log point once."""
        logged = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        wanted = [self.stride * update for update in range(1, self.updates + 1)]
        return logged == wanted and final_hash(run) == self.hash


def final_hash(run: Path) -> str:
    """The hash of a run's final weights."""
    return weights_hash(load_weights(run / "final")[0])


def execute(
    words: list[str], faults: str, run: Path, meanwhile: Callable[[subprocess.Popen, Path], None] | None = None
) -> Ended:
    """Run one command to its end."""
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "lockstep", *words],
        env={**os.environ, "LOCKSTEP_FAULTS": faults, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines: list[tuple[float, str]] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((time.monotonic() - start, line.rstrip()))

    reader = threading.Thread(target=read)
    reader.start()
    if meanwhile is not None:
        meanwhile(process, run)
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    seconds = time.monotonic() - start
    left = _left_behind(run)
    reader.join(10)
    return Ended(code, lines, seconds, left)


def wait_for_points(run: Path, count: int) -> None:
    """Wait until a run has so many log points."""
    log, deadline = run / "metrics.jsonl", time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not (log.exists() and log.read_bytes().count(b"\n") >= count):
        time.sleep(0.05)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    """The ranks and other processes that a launcher has started."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _left_behind(run: Path) -> list[str]:
    """Processes of a run that outlived it by five seconds, a lock that is still signed, unfinished files."""
    deadline = time.monotonic() + 5.0
    while (alive := _processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    lock = run / "lock.json"
    signed = ["lock"] if (run / "final").exists() and lock.exists() and lock.read_text() else []
    unfinished = [path.name for path in run.rglob(".tmp-*")] if (run / "final").exists() else []
    return [f"process {pid}" for pid in alive] + signed + unfinished


def _processes_of(run: Path) -> list[int]:
    words = [str(run.parent), run.name]
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        line = process.info["cmdline"] or []
        if all(word in line for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found
