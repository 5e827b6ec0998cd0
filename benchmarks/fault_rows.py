"""The faults of the campaign, one function a row of the table: each plants its fault some times and counts."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from fault_runs import Bench, Ended, family, wait_for_points

ROOT = Path(__file__).parent.parent
KILLS_A_RUN = 5
STAGES = ("open", "write", "manifest", "publish", "published", "prune")


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
            print("\n".join(ended.text.splitlines()[-30:]), ended.left, file=sys.stderr)


@dataclass(frozen=True)
class Options:
    """How much is done."""

    kills: int
    few: int
    ranks: int
    workloads: list[str]


Row = Callable[[Options], Tally]
_benches: dict[str, Bench] = {}


def bench(workload: str = "snake") -> Bench:
    """The undisturbed run of a workload, made once."""
    if workload not in _benches:
        _benches[workload] = Bench(workload)
    return _benches[workload]


def kills(options: Options) -> Tally:
    """Random ranks, random updates, SIGKILL; several in one run, one after the other."""
    tally, recoveries, redone = Tally(), [], []
    for workload in options.workloads:
        made = bench(workload)
        for first in range(0, options.kills, KILLS_A_RUN):
            count = min(KILLS_A_RUN, options.kills - first)
            share = max(1, (made.updates - 1) // count)
            faults = "; ".join(
                f"kill@rank=~0..{options.ranks - 1},at=~{n * share}..{(n + 1) * share - 1},seed={first + n},attempt={n}"
                for n in range(count)
            )
            ended, run = made.train(options.ranks, faults, "--max-restarts", "10")
            struck = ended.text.count("was killed by SIGKILL")
            # A write that is under way when the kill comes adds the updates done during it.
            within = all(steps <= 3 * made.stride for steps in ended.redone())
            tally.count(ended.code == 0 and struck == count and within and made.ends_alike(run), ended, count)
            recoveries += ended.recoveries()
            redone += [steps // made.stride for steps in ended.redone()]
    middle = sorted(recoveries)[len(recoveries) // 2] if recoveries else 0.0
    tally.note = (
        f"{', '.join(options.workloads)}; {options.ranks} ranks; back to stepping after {middle:.0f} s (median)"
    )
    tally.note += f", {max(recoveries, default=0):.0f} s at most; at most {max(redone, default=0)} updates redone"
    return tally


def kills_while_saving(_: Options) -> Tally:
    """Every stage of the writer, on rank 0 and on rank 1."""
    tally, made = Tally(), bench()
    for rank in (0, 1):
        stages = [stage for stage in STAGES if rank == 0 or stage == "write"]
        faults = "; ".join(
            f"kill@place={s},rank={rank},at={1 if s == 'prune' else 2},attempt={n}" for n, s in enumerate(stages)
        )
        ended, run = made.train(2, faults, "--max-restarts", "20", "--keep", "1")
        struck = ended.text.count("was killed by SIGKILL")
        tally.count(ended.code == 0 and struck == len(stages) and made.ends_alike(run), ended, len(stages))
    return tally


def launcher_killed(options: Options) -> Tally:
    """SIGKILL to the launcher alone; the same command again."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        took = []

        def kill(process: subprocess.Popen, run: Path, number: int = number, took: list[float] = took) -> None:
            wait_for_points(run, 2 + number % 6)
            ranks = family(process)
            process.kill()
            start = time.monotonic()
            psutil.wait_procs(ranks, timeout=30)
            took.append(time.monotonic() - start)

        ended, run = made.train(2, meanwhile=kill)
        again, _ = made.train(2, name=run.name)
        tally.count(not ended.left and took[0] < 5 and again.code == 0 and made.ends_alike(run), again)
        tally.note = f"ranks gone after {max([*took]):.1f} s"
    return tally


def silent(kind: str) -> Row:
    """A rank that is stopped, or that never lets Python run again."""

    def row(options: Options) -> Tally:
        tally, made = Tally(), bench()
        for number in range(options.few):
            fault = f"{kind}@rank={number % 2},at=~2..8,seed={number}"
            ended, run = made.train(2, fault, "--timeout", "20")
            named = re.search(rf"rank {number % 2} no longer answered at step [\d,]+ \(learning\)", ended.text)
            tally.count(ended.code == 0 and named is not None and made.ends_alike(run), ended)
        tally.note = "found after half of --timeout (20 s here), 120 s at most"
        return tally

    return row


def exceptions(options: Options) -> Tally:
    """Once, then a restart; at the same step for ever, then the end."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        ended, run = made.train(2, f"raise@rank=1,at=~2..8,seed={number}")
        told = re.search(r"rank 1 ended with exit code 1 at step [\d,]+ \(learning\)", ended.text)
        tally.count(ended.code == 0 and told is not None and made.ends_alike(run), ended)
    ended, _ = made.train(2, "raise@rank=1,at=4,attempt=0..")
    last = ended.text.splitlines()[-1]
    tally.count(ended.code == 3 and last == "not restarted: it failed in the same way twice", ended)
    return tally


def leaves(options: Options) -> Tally:
    """A rank that ends with 0 in the middle."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        ended, run = made.train(2, f"leave@rank={number % 2},at=~2..8,seed={number}")
        told = f"rank {number % 2} left before the others, with exit code 0," in ended.text
        tally.count(ended.code == 0 and told and made.ends_alike(run), ended)
    return tally


def crash_loop(_: Options) -> Tally:
    """A kill at the same update in every attempt."""
    tally, made = Tally(), bench()
    ended, _ = made.train(2, "kill@rank=1,at=5,attempt=0..")
    last = ended.text.splitlines()[-1]
    tally.count(ended.code == 3 and last == "not restarted: 3 restart(s) in a row brought no progress", ended)
    ended, run = made.train(2, "; ".join(f"kill@rank=1,at={2 * n + 1},attempt={n}" for n in range(5)))
    tally.count(ended.code == 0 and made.ends_alike(run), ended)
    tally.note = "3 without progress end the run; 5 with progress do not"
    return tally


def preemptions(options: Options) -> Tally:
    """SIGTERM and SIGUSR1 to the launcher, SIGTERM to one rank, and in the middle of a save."""
    tally, made, draw = Tally(), bench(), random.Random(9)
    for number in range(options.few):
        name = signal.SIGTERM if number % 2 else signal.SIGUSR1

        def ask(process: subprocess.Popen, run: Path, name: signal.Signals = name) -> None:
            wait_for_points(run, 1 + draw.randrange(6))
            time.sleep(draw.random() * 0.3)
            process.send_signal(name)

        cases = [
            ("", ask),
            (f"terminate@rank={number % 2},at=~2..8,seed={number}", None),
            (f"terminate@rank=0,place={STAGES[number % 5]},at=2", None),
        ]
        for faults, meanwhile in cases:
            ended, run = made.train(2, faults, meanwhile=meanwhile)
            steps = [path.name for path in (run / "checkpoints").glob("step-*")]
            again, _ = made.train(2, name=run.name)
            good = ended.code == 75 and len(set(steps)) == len(steps) and again.code == 0
            tally.count(good and made.ends_alike(run), ended)
    return tally


def interrupts(options: Options) -> Tally:
    """Ctrl-C: the whole process group gets SIGINT."""
    tally, made, slowest = Tally(), bench(), 0.0
    for number in range(options.few):
        asked = []

        def interrupt(process: subprocess.Popen, run: Path, number: int = number, asked: list[float] = asked) -> None:
            wait_for_points(run, 1 + number % 6)
            asked.append(time.monotonic())
            os.killpg(process.pid, signal.SIGINT)
            process.wait(30)
            asked.append(time.monotonic())

        ended, run = made.train(2, meanwhile=interrupt)
        again, _ = made.train(2, name=run.name)
        slowest = max(slowest, asked[1] - asked[0])
        quiet = "Traceback" not in ended.text
        tally.count(ended.code == 130 and quiet and slowest < 8 and again.code == 0 and made.ends_alike(run), ended)
    tally.note = f"gone after {slowest:.1f} s at most"
    return tally


def divergence(_: Options) -> Tally:
    """The weights of each rank in turn are moved."""
    tally, made = Tally(), bench()
    for rank in (0, 1):
        ended, _ = made.train(2, f"diverge@rank={rank},at=3", "--check-every", "1")
        tally.count(ended.code == 3 and "replicas diverged at step" in ended.text, ended)
    return tally


def not_finite(_: Options) -> Tally:
    """One gradient of each rank in turn; then all of them for ever."""
    tally, made = Tally(), bench()
    for rank in (0, 1):
        ended, _ = made.train(2, f"nan@rank={rank},at=4")
        tally.count(ended.code == 0 and "a gradient was not finite" in ended.text, ended)
    ended, _ = made.train(2, "nan@rank=1,at=2..,attempt=0..", "--nonfinite-limit", "3")
    tally.count(ended.code == 3 and "3 updates in a row" in ended.text, ended)
    return tally


def out_of_memory(options: Options) -> Tally:
    """torch.OutOfMemoryError on each rank in turn."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        ended, _ = made.train(2, f"memory@rank={number % 2},at=~2..8,seed={number}")
        told = f"rank {number % 2} ran out of memory at step" in ended.text and "(--grad-accum 2)" in ended.text
        tally.count(ended.code == 0 and told, ended)
    return tally


def stragglers(_: Options) -> Tally:
    """One rank is stopped for 150 ms of every 200."""
    tally, made = Tally(), bench()

    def hold_up(process: subprocess.Popen, run: Path) -> None:
        wait_for_points(run, 1)
        slow = family(process)[-1]
        while process.poll() is None:
            try:
                slow.suspend()
                time.sleep(0.15)
                slow.resume()
            except psutil.NoSuchProcess:
                return
            time.sleep(0.05)

    ended, _ = made.train(2, "", "--max-updates", "60", meanwhile=hold_up)
    tally.count(ended.code == 0 and re.search(r"rank [01] holds the others up", ended.text) is not None, ended)
    return tally


def pairs(_: Options) -> Tally:
    """Two runs started at the same moment, twenty times."""
    tally, made = Tally(), bench()
    for _ in range(20):
        names = [f"pair-{made.runs}-{side}" for side in "ab"]
        words = [made.words(name, 2, "--max-updates", "1") for name in names]
        both = [subprocess.Popen([sys.executable, "-m", "lockstep", *w], stdout=subprocess.DEVNULL) for w in words]
        made.runs += 1
        tally.count([process.wait(300) for process in both] == [0, 0])
    return tally


def loggers(_: Options) -> Tally:
    """TensorBoard hangs for five minutes."""
    tally, made = Tally(), bench()
    ended, run = made.train(2, "slow@place=logger,seconds=300")
    tally.count(ended.code == 0 and ended.seconds < 200 and made.ends_alike(run), ended)
    tally.note = "besides tests/core/reporting/test_metrics.py"
    return tally


def tests(*names: str, planted: int = 0, note: str = "") -> Row:
    """A row that tests hold: as many faults as they plant, or as there are tests."""

    def row(_: Options) -> Tally:
        words = [sys.executable, "-m", "pytest", "-m", "slow or not slow", "-p", "no:cacheprovider", *names]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        passed = sum(int(number) for number in re.findall(r"(\d+) passed", done.stdout))
        failed = sum(int(number) for number in re.findall(r"(\d+) (?:failed|error)", done.stdout))
        skipped = " (some skipped here)" if "skipped" in done.stdout else ""
        count = planted or passed + failed
        return Tally(
            count,
            count if not failed and passed else 0,
            (note or ", ".join(name for name in names if name.startswith("tests"))) + skipped,
        )

    return row
