"""What works with the installed torch, as a user would see it: train on two ranks, resume on one, verify.

python benchmarks/torch_versions.py            every workload; prints a row of the table in docs/torch-versions.md
python benchmarks/torch_versions.py --write    also puts the row into that page

`make test-torch TORCH=2.11.0` makes an environment with another torch and runs this in it, after the tests of ranks.
"""

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights
from lockstep.workloads import registry

PAGE = Path(__file__).parent.parent / "docs" / "torch-versions.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
UPDATES = 4


def lockstep(*words: str) -> subprocess.CompletedProcess:
    """Run a command to its end."""
    command = [sys.executable, "-m", "lockstep", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def shown(done: subprocess.CompletedProcess, what: str) -> bool:
    """Whether a command succeeded; what it said is printed where it did not."""
    if done.returncode:
        print(f"{what}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}", flush=True)
    return done.returncode == 0


def trains(workload: str, folder: Path, name: str, ranks: int, updates: int) -> bool:
    """A short run in exact mode."""
    sizes = ["--sync", "exact", "--max-updates", str(updates), "--eval-every", "0", "--checkpoint-every", "0"]
    place = ["--runs-dir", str(folder), "--run-name", name, "--ranks", str(ranks)]
    return shown(lockstep("train", workload, "--preset", "debug", *place, *sizes), f"train {workload}")


def resumes(workload: str, folder: Path) -> bool:
    """A run of two ranks that goes on with one ends in the weights of an undisturbed run on one."""
    more = lockstep("resume", str(folder / "pair"), "--ranks", "1", "--max-updates", str(UPDATES))
    if not shown(more, f"resume {workload}") or not trains(workload, folder, "alone", 1, UPDATES):
        return False
    one, other = (weights_hash(load_weights(folder / name / "final")[0]) for name in ("pair", "alone"))
    return one == other


def try_workload(workload: str) -> tuple[bool, bool, bool]:
    """Whether it trains on two ranks, resumes on one, and verifies."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        trained = trains(workload, folder, "pair", 2, UPDATES // 2)
        resumed = trained and resumes(workload, folder)
        words = ("verify", workload, "--ranks", "1,2", "--updates", "2", "--device", "cpu")
        return trained, resumed, shown(lockstep(*words), f"verify {workload}")


def write(row: str) -> None:
    """Put a row into the page, in the place of that version's old one; the newest version stands last."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    head, line, *rows = old.strip().splitlines()
    version = row.split("|")[1]
    rows = [one for one in rows if one.split("|")[1] != version] + [row]
    rows.sort(key=lambda one: [int(part) for part in one.split("|")[1].strip().partition("+")[0].split(".")])
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join([head, line, *rows]) + f"\n{END}{after}")


def main() -> int:
    """Try every workload; 0 where everything works."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default=",".join(registry.names()))
    parser.add_argument("--tests", default="-", help="what pytest said of the tests of ranks, for the table")
    parser.add_argument("--write", action="store_true", help="put the row into docs/torch-versions.md")
    given = parser.parse_args()
    start, names = time.monotonic(), given.workloads.split(",")
    results = [try_workload(name) for name in names]
    counts = [f"{sum(column)} of {len(names)}" for column in zip(*results, strict=True)]
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    row = f"| {torch.__version__} | {' | '.join(counts)} | {given.tests} | {machine} |"
    print(f"{row}  ({time.monotonic() - start:.0f} s)")
    if given.write:
        write(row)
    return int(not all(all(result) for result in results))


if __name__ == "__main__":
    sys.exit(main())
