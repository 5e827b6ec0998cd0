"""How long match files take to become tables: `python benchmarks/cricket_data.py --data ZIP [--split FILE]`.

Prepares the data twice, first from the files and then from the cache, and prints seconds, processor seconds, the peak
memory and the baselines' log loss on the validation matches.
"""

import argparse
import resource
import sys
import tempfile
import time
from contextlib import contextmanager

from lockstep.distributed.world import World
from lockstep.workloads.cricket.data.preparation import open_splits
from lockstep.workloads.cricket.reports.baselines import BASELINES, log_loss
from lockstep.workloads.cricket.settings import CricketSettings


@contextmanager
def timed(what: str):
    """Print how long something took."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform != "darwin" else 1 << 30)
    print(f"{what:24} {wall:6.1f} s   {processor:6.1f} s of processor   peak memory {peak:.2f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="", help="folder or zip of match files; none = the simulated league")
    parser.add_argument("--split", default="", help="JSON file with the names of each part")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = CricketSettings(data=told.data, split=told.split, cache_dir=folder)
        with timed("files to tables"):
            open_splits(settings, World())
        with timed("from the cache"):
            splits = open_splits(settings, World())
    print(f"samples: train {splits.train.samples:,}, validation {splits.validation.samples:,}")
    for name, predict in BASELINES.items():
        print(f"  {name:10} log loss {log_loss(predict(splits.train, splits.validation), splits.validation):.4f}")


if __name__ == "__main__":
    main()
