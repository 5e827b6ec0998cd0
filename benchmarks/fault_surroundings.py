"""Faults of what a run lives in: its clock, its directory, its terminal, its neighbours, and what the system grants."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from fault_places import intact
from fault_rows import PACED
from fault_runs import Going, final_hash
from fault_tally import Options, Tally, bench

CLOCK = """
import os, time
from pathlib import Path
_true, _mark = time.time, Path(os.environ["CLOCK_MARK"])
time.time = lambda: _true() - (float(_mark.read_text() or 0) if _mark.exists() else 0.0)
"""
"""A clock that was set back by as many seconds as a file says."""
SHIFTS = (1.0, 60.0, 3600.0, 86400.0 * 365 * 20, -86400.0)
CHECKPOINTS = 200


def clock(options: Options) -> Tally:
    """The clock of all processes is set back in the middle, and a rank killed afterwards; once it is set forward."""
    tally, made = Tally(), bench()
    stub = made.folder / "clock"
    stub.mkdir(exist_ok=True)
    (stub / "sitecustomize.py").write_text(CLOCK)
    path = os.pathsep.join([str(stub), os.environ.get("PYTHONPATH", "")])
    for number in range(options.few):
        mark = stub / f"mark-{number}"

        def set_back(going: Going, number: int = number, mark: Path = mark) -> None:
            going.wait_for_points(3)
            mark.write_text(str(SHIFTS[number % len(SHIFTS)]))
            going.wait_for_points(5)
            going.ranks()[number % 2].kill()

        ended, run = made.train(2, PACED, meanwhile=set_back, PYTHONPATH=path, CLOCK_MARK=str(mark))
        tally.count(ended.code == 0 and made.ends_alike(run) and intact(run), ended)
    tally.note = "by a second, a minute, an hour, 20 years, and a day forward; then a rank is killed"
    return tally


def directory_gone(options: Options) -> Tally:
    """The run's directory is moved or deleted."""
    tally, made = Tally(), bench()
    for number in range(2 * options.few):
        moved = made.folder / f"moved-{number}"

        def take_away(going: Going, number: int = number, moved: Path = moved) -> None:
            going.wait_for_points(1 + number // 2)
            going.run.rename(moved) if number % 2 else delete(going.run)

        ended, run = made.train(1 + number // 2 % 2, PACED, meanwhile=take_away)
        last = ended.text.splitlines()[-1]
        told = f"was moved to {moved}" in last if number % 2 else "is gone" in last
        good = ended.code == 3 and told and "Traceback" not in ended.text and not run.exists()
        if number % 2:
            again, run = made.train(2, "", name=moved.name)
        else:
            again, run = made.train(2, "", name=run.name)
        tally.count(good and again.code == 0 and made.ends_alike(run), ended)
    tally.note = "moved: resumed where it is; deleted: ended with a line"
    return tally


def delete(run: Path) -> None:
    """Remove a directory that is being written to, as `rm -rf` does when it is called until nothing is left."""
    while run.exists():
        shutil.rmtree(run, ignore_errors=True)


def descriptors(options: Options) -> Tally:
    """64 open files, then so few that no run can do with them."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        ended, run = made.train(1 + number % 4, prefix=limited("-n 64"))
        tally.count(ended.code == 0 and made.ends_alike(run), ended)
    for few in (50, 40, 32):
        ended, run = made.train(2, prefix=limited(f"-n {few}"))
        told = re.search(rf"^lockstep: ulimit -n {few}: 2 rank\(s\)", ended.text, re.M) is not None
        tally.count(ended.code == 2 and told and not run.exists(), ended)
    tally.note = "64 are enough for 4 ranks; fewer than a run needs are refused before it starts"
    return tally


def limited(limit: str) -> list[str]:
    """What to put before a command that is to have less."""
    return ["bash", "-c", f'ulimit {limit}; exec "$@"', "-"]


def launcher_stopped(options: Options) -> Tally:
    """SIGSTOP to the launcher for longer than a rank may be silent: the ranks go on, and none is taken for silent."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        seconds, pace = (60.0, 6.0) if number == 0 else (15.0, 1.5 if number % 2 else 0.5)
        went_on: list[bool] = []

        def stop(going: Going, seconds: float = seconds, went_on: list[bool] = went_on) -> None:
            going.wait_for_points(2)
            before = points(going.run)
            going.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            went_on.append(points(going.run) > before)
            going.process.send_signal(signal.SIGCONT)

        ended, run = made.train(2, f"slow@at=2..,seconds={pace}", "--timeout", "20", meanwhile=stop)
        undisturbed = "restarting" not in ended.text and "no longer answered" not in ended.text
        tally.count(ended.code == 0 and went_on[0] and undisturbed and made.ends_alike(run), ended)
    tally.note = "once for a minute, else for 15 s, where ranks may be silent for 10 s"
    return tally


def points(run: Path) -> int:
    """How many log points a run has."""
    return (run / "metrics.jsonl").read_bytes().count(b"\n")


def starved(options: Options) -> Tally:
    """A rank gets about a hundredth of a core for twenty seconds: the lowest priority, beside a busy loop."""
    tally, made = Tally(), bench()
    cores = psutil.Process().cpu_affinity() or [0]
    for number in range(options.few):

        def starve(going: Going, rank: int = number % 2, core: int = cores[-1]) -> None:
            going.wait_for_points(2)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim = going.ranks()[rank]
                victim.nice(19)
                victim.cpu_affinity([core])
                hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                psutil.Process(hog.pid).cpu_affinity([core])
                time.sleep(20)
                hog.kill()
                hog.wait()

        ended, run = made.train(2, meanwhile=starve)
        tally.count(ended.code == 0 and "restarting" not in ended.text and made.ends_alike(run), ended)
    return tally


def three_at_once(options: Options) -> Tally:
    """Three runs that nobody gave a name, started at the same moment."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        folder = made.folder / f"three-{number}"
        words = [made.words("", ranks, "--runs-dir", str(folder)) for ranks in (2, 1, 1)]
        unnamed = [[word for at, word in enumerate(w) if "--run-name" not in w[max(at - 1, 0) : at + 1]] for w in words]
        ended = [going.ended() for going in [Going(one, folder / "none") for one in unnamed]]
        runs = sorted(folder.iterdir())
        good = all(one.code == 0 for one in ended) and len(runs) == 3 and all(map(made.ends_alike, runs))
        tally.count(good, max(ended, key=lambda one: one.code), 3)
    return tally


def many_checkpoints(_: Options) -> Tally:
    """A run that keeps 200 checkpoints, a rank killed after the 150th; every one is verified at the end."""
    tally, made = Tally(), bench()
    updates = CHECKPOINTS + 4
    sizes = ["--max-updates", str(updates), "--total-timesteps", str(updates * made.stride)]
    alone, first = made.train(1, "", *sizes, "--checkpoint-every", "0")
    keeping = ["--checkpoint-every", str(made.stride), "--keep", str(CHECKPOINTS)]
    ended, run = made.train(2, "kill@rank=1,at=150", *sizes, *keeping)
    kept = verify_each(run)
    good = alone.code == 0 and ended.code == 0 and final_hash(first) == final_hash(run)
    tally.count(good and kept == CHECKPOINTS, ended, CHECKPOINTS)
    tally.note = "after a kill at update 150, the newest 200 of 204 are there and verify"
    return tally


def verify_each(run: Path) -> int:
    """How many checkpoints of a run stand; 0 where any is damaged."""
    return len(list((run / "checkpoints").glob("step-*"))) if intact(run) else 0


def reader_gone(options: Options) -> Tally:
    """`| head -1` on stdout or on both, a full disk under the log, and all streams closed from the start."""
    tally, made = Tally(), bench()
    closings = ('"$@" | head -n 1', '"$@" 2>&1 | head -n 3', '"$@" > /dev/full 2>&1', '"$@" <&- >&- 2>&-')
    for ranks in (1, 2):
        for closing in closings:
            ended, run = made.train(ranks, prefix=["bash", "-c", f"set -o pipefail; {closing}", "-"])
            tally.count(ended.code == 0 and made.ends_alike(run), ended)
    # What the launcher has to say of a rank that was killed finds no reader either.
    ended, run = made.train(2, "kill@rank=1,at=4", prefix=["bash", "-c", f"set -o pipefail; {closings[1]}", "-"])
    tally.count(ended.code == 0 and made.ends_alike(run), ended)
    return tally
