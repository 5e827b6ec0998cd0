"""The kills of the fault campaign: random ranks at random moments, several in one run, and what each of them cost."""

import json
import platform
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from fault_runs import RESTARTS, Bench, Going

KILLS_A_RUN = 8
INTERVAL = 2
"""Updates between two checkpoints."""
GOES_ON = r"^(step \d|done: )"
"""What a run prints after an update, or where its last checkpoint was its end."""
LIMIT = 20.0
"""Seconds within which a run must be back to stepping."""


@dataclass
class Kills:
    """What kills of one workload's ranks came to."""

    workload: str
    ranks: int
    planted: int = 0
    held: int = 0
    noticed: list[float] = field(default_factory=list)
    """Seconds from each kill until all ranks had ended and the launcher had said which one was killed."""
    back: list[float] = field(default_factory=list)
    """Seconds from each kill to the end of the first update after it."""
    redone: list[int] = field(default_factory=list)
    """Updates that were done again after each kill."""
    seconds: float = 0.0
    machine: str = ""

    def count(self, good: bool, times: int) -> None:
        """Count the kills of one run, which stand or fall together."""
        self.planted += times
        self.held += times * good

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read(path: Path) -> Kills:
    """What `write` kept."""
    return Kills(**json.loads(path.read_text()))


def kill(workload: str, kills: int, ranks: int, seed: int = 0) -> Kills:
    """Kill ranks of a workload so many times; what went wrong is printed."""
    start, made, draw = time.monotonic(), Bench(workload, updates=16), random.Random(f"{workload} {seed}")
    cores = len(psutil.Process().cpu_affinity() or [])
    done = Kills(workload, ranks, machine=f"{platform.machine()}, {cores} cores")
    while done.planted < kills:
        most = min(KILLS_A_RUN, kills - done.planted, made.updates - 2)
        # Between the first log point and the last but one, so that there is a run to go on with after every kill.
        points = sorted(draw.sample(range(1, made.updates - 1), most))
        strikes = _Strikes(points, made.pace, draw)
        ended, run = made.train(ranks, "", "--max-restarts", "20", meanwhile=strikes)
        redone = made.redone(ended)
        # A write that is under way when the kill comes is lost with what was done during it.
        within = all(updates <= INTERVAL + 1 for updates in redone)
        # A run may end before the last of its points is struck; what was struck must be noticed and survived.
        struck = 0 < strikes.count == len(strikes.back) == ended.text.count("was killed by SIGKILL")
        soon = all(seconds < LIMIT for seconds in strikes.back)
        good = ended.code == 0 and struck and within and soon and not ended.left and made.ends_alike(run)
        done.count(good, strikes.count or 1)
        done.noticed += strikes.noticed
        done.back += strikes.back
        done.redone += redone
        if not good:
            print("\n".join(ended.text.splitlines()[-60:]))
            print(ended.code, points, strikes.back, redone, ended.left, made.ends_alike(run), flush=True)
    made.close()
    done.seconds = time.monotonic() - start
    return done


class _Strikes:
    """Kills a rank of a run a random while after each of some log points."""

    def __init__(self, points: Sequence[int], pace: float, draw: random.Random) -> None:
        self._points, self._pace, self._draw = points, pace, draw
        self.count = 0
        self.noticed: list[float] = []
        self.back: list[float] = []

    def __call__(self, going: Going) -> None:
        """Strike until the points are used up."""
        for point in self._points:
            if not going.wait_for_points(point):
                return
            time.sleep(self._draw.random() * self._pace)
            if not self._strike(going):
                return

    def _strike(self, going: Going) -> bool:
        victims = going.ranks()
        if not victims:
            return False
        struck = time.monotonic()
        self._draw.choice(victims).kill()
        self.count += 1
        # What a dying rank 0 may still print of its last update comes before the launcher's word.
        if not going.wait_until(lambda: going.said_since(struck, RESTARTS) > 0):
            return False
        noticed = going.said_since(struck, RESTARTS)
        if not going.wait_until(lambda: going.said_since(noticed, GOES_ON) > 0):
            return False
        self.noticed.append(noticed - struck)
        self.back.append(going.said_since(noticed, GOES_ON) - struck)
        return True


def summary(results: Sequence[Kills]) -> str:
    """One line on kills of several workloads."""
    back = [seconds for result in results for seconds in result.back] or [0.0]
    noticed = [seconds for result in results for seconds in result.noticed]
    redone = [updates for result in results for updates in result.redone]
    each = ", ".join(f"{result.workload} {result.held} of {result.planted}" for result in results)
    return (
        f"{each}; {results[0].ranks} ranks on {results[0].machine}; noticed after {max(noticed, default=0.0):.1f} s at "
        f"most, back to stepping after {statistics.median(back):.1f} s (median), {max(back):.1f} s at most; "
        f"at most {max(redone, default=0)} updates redone, with a checkpoint every {INTERVAL}"
    )
