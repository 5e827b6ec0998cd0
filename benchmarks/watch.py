"""What `lockstep watch` costs the run it shows: its speed with and without a watcher, in turns of one run.

python benchmarks/watch.py [--workload snake] [--preset debug] [--ranks 2] [--seconds 30] [--turns 3] [--FIELD VALUE]...

A turn is four stretches: with a watcher, without, without, with, so that a drift of the machine moves nothing. The
watcher is the server with a page open: its events are read, and six curves and the details are asked for at each, as
the page does. The browser itself is left out; it usually runs on another machine. Beside the speeds stands the
processor time of the server, which other programs on the machine do not disturb.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil

PATTERN = (True, False, False, True)
TARGET = 0.01
TAGS = ("rollout/return_mean", "eval/return_mean", "train/policy_loss", "train/value_loss", "time/global_fps")


class Watcher:
    """A server and a page's questions to it."""

    def __init__(self, folder: Path, *, follow: bool = True) -> None:
        """`follow`: open the page; False = the server alone."""
        command = [sys.executable, "-m", "lockstep", "watch", "--runs-dir", str(folder)]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = re.search(r"http\S+", self._server.stdout.readline())[0]
        if not follow:
            return
        self._cursors: dict[str, str] = {}
        self.points = 0
        """Log points of the last run that is listed."""
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        self._base = self.address.split("?")[0]
        opener.open(self.address).read()
        self._open = opener.open
        self._live = opener.open(f"{self._base}api/live")
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        try:
            for line in self._live:
                if not line.startswith(b"data:"):
                    continue
                for run in json.loads(line[5:])["runs"]:
                    known = self._cursors.get(run["id"], "")
                    found = self._ask("series", run=run["id"], cursor=known, tag=TAGS, points=1200)
                    self._cursors[run["id"]] = found[TAGS[0]][0]["cursor"]
                    self._ask("run", id=run["id"])
                    self.points = run["points"]
        except (OSError, ValueError):
            pass  # the stretch is over

    def _ask(self, what: str, **parameters: str | int | tuple[str, ...]) -> Any:
        return json.load(self._open(f"{self._base}api/{what}?{urlencode(parameters, doseq=True)}"))

    def busy(self) -> float:
        """The seconds of processor time that the server has taken."""
        times = psutil.Process(self._server.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """End it."""
        self._server.send_signal(signal.SIGINT)
        self._server.wait()


def steps(log: Path) -> int:
    """The last step that is logged."""
    lines = log.read_bytes().splitlines() if log.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def stretch(folder: Path, log: Path, seconds: float, watched: bool) -> tuple[float, float]:
    """Steps a second of the run, and the watcher's processor time as a share of the stretch."""
    watcher = Watcher(folder) if watched else None
    # What it takes to start is not what it costs to stay.
    busy = watcher.busy() if watcher else 0.0
    before, start = steps(log), time.monotonic()
    try:
        time.sleep(seconds)
        done, elapsed = steps(log) - before, time.monotonic() - start
        busy = watcher.busy() - busy if watcher else 0.0
    finally:
        # Also after Ctrl-C: the server would stay behind.
        if watcher:
            watcher.close()
    return done / elapsed, busy / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="snake")
    parser.add_argument("--preset", default="debug")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=3)
    given, fields = parser.parse_known_args()
    fields = fields or ["--total-timesteps", "1000000000"]  # debug would end within the first turn
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "run" / "metrics.jsonl"
        words = ["train", given.workload, "--preset", given.preset, "--ranks", given.ranks, "--eval-every", "0"]
        words += ["--runs-dir", name, "--run-name", "run", *fields]
        run = subprocess.Popen([sys.executable, "-m", "lockstep", *words], stdout=subprocess.DEVNULL)
        try:
            while steps(log) == 0:
                time.sleep(0.2)
            losses, shares = [], []
            for turn in range(given.turns):
                found = [(watched, *stretch(folder, log, given.seconds, watched)) for watched in PATTERN]
                speed = {way: statistics.fmean(s for watched, s, _ in found if watched is way) for way in (True, False)}
                losses.append(1 - speed[True] / speed[False])
                shares.append(statistics.fmean(share for watched, _, share in found if watched))
                print(
                    f"turn {turn + 1}: {speed[True]:,.0f} steps/s watched, {speed[False]:,.0f} not: "
                    f"{losses[-1]:+.1%}; server {shares[-1]:.1%} of a core"
                )
            print(f"median loss {statistics.median(losses):+.2%} (target under {TARGET:.0%}), server {max(shares):.1%}")
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()


if __name__ == "__main__":
    main()
