"""Faults of processes, one function a row of the table: each plants its fault some times and counts."""

import os
import random
import re
import signal
import time

import psutil
from fault_kills import Kills, kill, read, summary
from fault_runs import Going
from fault_tally import Options, Row, Tally, bench

STAGES = ("open", "write", "manifest", "publish", "published", "prune")


def kills(options: Options) -> Tally:
    """Random ranks at random moments, SIGKILL; several in one run, one after the other."""
    results: list[Kills] = [read(path) for path in options.kills_from]
    results += [kill(workload, options.kills, options.ranks) for workload in options.workloads if not results]
    return Tally(sum(r.planted for r in results), sum(r.held for r in results), summary(results))


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

        def end(going: Going, number: int = number, took: list[float] = took) -> None:
            going.wait_for_points(2 + number % 6)
            family = going.family()
            going.process.kill()
            start = time.monotonic()
            psutil.wait_procs(family, timeout=30)
            took.append(time.monotonic() - start)

        ended, run = made.train(2, meanwhile=end)
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
    tally.count(ended.code == 3 and last == "not restarted: 3 restart(s) in a row made no progress", ended)
    ended, run = made.train(2, "; ".join(f"kill@rank=1,at={2 * n + 1},attempt={n}" for n in range(5)))
    tally.count(ended.code == 0 and made.ends_alike(run), ended)
    tally.note = "3 without progress end the run; 5 with progress do not"
    return tally


def preemptions(options: Options) -> Tally:
    """SIGTERM and SIGUSR1 to the launcher, SIGTERM to one rank, and in the middle of a save."""
    tally, made, draw = Tally(), bench(), random.Random(9)
    for number in range(options.few):
        name = signal.SIGTERM if number % 2 else signal.SIGUSR1

        def ask(going: Going, name: signal.Signals = name) -> None:
            going.wait_for_points(1 + draw.randrange(6))
            time.sleep(draw.random() * made.pace)
            going.process.send_signal(name)

        cases = [
            ("", ask),
            (f"terminate@rank={number % 2},at=~2..8,seed={number}", lambda _: None),
            (f"terminate@rank=0,place={STAGES[number % 5]},at=2", lambda _: None),
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

        def interrupt(going: Going, number: int = number, asked: list[float] = asked) -> None:
            going.wait_for_points(1 + number % 6)
            asked.append(time.monotonic())
            os.killpg(going.process.pid, signal.SIGINT)
            going.process.wait(30)
            asked.append(time.monotonic())

        ended, run = made.train(2, meanwhile=interrupt)
        again, _ = made.train(2, name=run.name)
        slowest = max(slowest, asked[1] - asked[0])
        quiet = "Traceback" not in ended.text
        tally.count(ended.code == 130 and quiet and slowest < 8 and again.code == 0 and made.ends_alike(run), ended)
    tally.note = f"gone after {slowest:.1f} s at most"
    return tally
