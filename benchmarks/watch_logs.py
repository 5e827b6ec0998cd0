"""What `lockstep watch` takes for long logs: a share of a core while one grows, and the time to a page's first curves.

python benchmarks/watch_logs.py [--points 1000,10000,100000] [--rate 8] [--seconds 20]
python benchmarks/watch_logs.py --paint [--runs 20] [--points 10000]

The logs are made of a short run's log points, so that nothing trains beside it. The page of the first is the one of
benchmarks/watch.py, without a browser. The second opens Chromium (by playwright), and tells when the list of runs and
when the first curve can be seen, counted from the request for the page, and the processor time that was taken for it:
on a machine that is busy with other things that says more.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from watch import Watcher

SHORT = ("train", "snake", "--preset", "debug", "--ranks", "2", "--max-updates", "6", "--quiet")

# A canvas is there before it is drawn; a curve has pixels that are not transparent.
HAS_CURVE = """() => [...document.querySelectorAll("#charts canvas")].some((canvas) => canvas.width
    && canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value))"""


def point(of: dict[str, Any], number: int) -> str:
    """The line of a log point like another one."""
    values = {tag: value * (1 + number % 97 / 100) for tag, value in of.items() if isinstance(value, float)}
    moved = {"step": 256 * (number + 1), "time": of["time"] + number / 8, "weights_sha256": f"{number:064x}"}
    return json.dumps(of | values | moved) + "\n"


def made(folder: Path, runs: int, points: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Runs with that many log points each: their directories and the log point that they are made of."""
    subprocess.run([sys.executable, "-m", "lockstep", *SHORT, "--runs-dir", folder, "--run-name", "run-0"], check=True)
    first = folder / "run-0"
    sample = json.loads((first / "metrics.jsonl").read_text().splitlines()[-1])
    (first / "metrics.jsonl").write_text("".join(point(sample, number) for number in range(points)))
    for number in range(runs):
        path = folder / f"run-{number}"
        if number:
            shutil.copytree(first, path)
        yield path, sample


def grow(log: Path, sample: dict[str, Any], points: int, rate: float, stop: threading.Event) -> None:
    """Append log points at an even rate."""
    with log.open("a") as file:
        for number in range(points, 1 << 30):
            if stop.wait(1 / rate):
                return
            file.write(point(sample, number))
            file.flush()


def share(points: int, rate: float, seconds: float) -> float:
    """The server's share of a core with a page open on a run that grows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        [(path, sample)] = made(folder, 1, points)
        watcher = Watcher(folder)
        stop = threading.Event()
        threading.Thread(target=grow, args=(path / "metrics.jsonl", sample, points, rate, stop), daemon=True).start()
        try:
            while watcher.points < points:  # the log is read, which is done once
                time.sleep(0.5)
            busy, start = watcher.busy(), time.monotonic()
            time.sleep(seconds)
            return (watcher.busy() - busy) / (time.monotonic() - start)
        finally:
            stop.set()
            watcher.close()


def paint(runs: int, points: int) -> str:
    """When a browser shows the runs and a curve."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        list(made(Path(name), runs, points))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        # Without a look before it, so that the whole of it is counted.
        watcher = Watcher(Path(name), follow=False)
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            before, start = (watcher.busy(), processor_time()), time.monotonic()
            page.goto(watcher.address)
            page.locator(".run").nth(runs - 1).wait_for()
            listed = time.monotonic() - start
            while not page.evaluate(HAS_CURVE):
                page.wait_for_timeout(20)
            drawn = time.monotonic() - start
            server, browsing = watcher.busy() - before[0], processor_time() - before[1]
        finally:
            watcher.close()
            browser.close()
    when = f"listed after {listed:.2f} s, curves after {drawn:.2f} s"
    took = f"{server:.2f} s of processor time in the server, {browsing - server:.2f} s in the browser"
    return f"{runs} runs of {points:,} points: {when}; {took}"


def processor_time() -> float:
    """The seconds that the processes that were started from here have taken, on all cores."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default="1000,10000")
    parser.add_argument("--rate", type=float, default=8.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--paint", action="store_true")
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    for points in map(int, given.points.split(",")):
        if given.paint:
            print(paint(given.runs, points), flush=True)
        else:
            found = share(points, given.rate, given.seconds)
            print(f"{points:,} log points and {given.rate:g} more a second: server {found:.2%} of a core", flush=True)


if __name__ == "__main__":
    main()
