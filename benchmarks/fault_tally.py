"""What the rows of the fault campaign share: how faults are counted, and rows that tests hold."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault_runs import Bench, Ended

ROOT = Path(__file__).parent.parent


@dataclass
class Tally:
    """How often a fault was planted and how often everything held."""

    planted: int = 0
    held: int = 0
    note: str = ""

    def count(self, good: bool, ended: Ended | None = None, times: int = 1) -> None:
        """Count a fault, or several of one run; what went wrong is shown."""
        self.planted += times
        good = good and not (ended and ended.left)
        self.held += times * good
        if not good and ended is not None:
            print("\n".join(ended.text.splitlines()[-30:]), ended.code, ended.left, file=sys.stderr)

    def add(self, other: "Tally") -> "Tally":
        """This one and another, their notes together."""
        notes = [note for note in (self.note, other.note) if note]
        return Tally(self.planted + other.planted, self.held + other.held, "; ".join(notes))


@dataclass(frozen=True)
class Options:
    """How much is done."""

    kills: int
    few: int
    ranks: int
    workloads: list[str]
    kills_from: list[Path]
    """Kills that were counted elsewhere."""


Row = Callable[[Options], Tally]
_benches: dict[str, Bench] = {}


def bench(workload: str = "snake") -> Bench:
    """The undisturbed run of a workload, made once."""
    if workload not in _benches:
        _benches[workload] = Bench(workload)
    return _benches[workload]


def close_benches() -> None:
    """Remove what undisturbed and disturbed runs left on purpose."""
    for made in _benches.values():
        made.close()


def tests(*names: str, planted: int = 0, note: str = "") -> Row:
    """A row that tests hold: as many faults as they plant, or as there are tests."""

    def row(_: Options) -> Tally:
        words = [sys.executable, "-m", "pytest", "-m", "slow or not slow", "-p", "no:cacheprovider", *names]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        passed = sum(int(number) for number in re.findall(r"(\d+) passed", done.stdout))
        failed = sum(int(number) for number in re.findall(r"(\d+) (?:failed|error)", done.stdout))
        if failed:
            print(done.stdout[-5000:], file=sys.stderr)
        skipped = " (some skipped here)" if "skipped" in done.stdout else ""
        count = planted or passed + failed
        return Tally(
            count,
            count if not failed and passed else 0,
            (note or ", ".join(name for name in names if name.startswith("tests"))) + skipped,
        )

    return row
