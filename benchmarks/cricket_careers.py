"""What careers of later matches are worth: `python benchmarks/cricket_careers.py --data ZIP --split FILE`.

Trains the same network twice, with careers that count all other training matches (`--careers all`) and with what was
known on the day of each match (`--careers earlier`), and prints the best validation log loss of each beside that of the
additive model of the same careers.
"""

import argparse

import lockstep
from lockstep.distributed.world import World
from lockstep.workloads.cricket.data.preparation import open_splits
from lockstep.workloads.cricket.reports.baselines import BASELINES, log_loss
from lockstep.workloads.cricket.settings import CricketSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="", help="folder or zip of match files; none = the simulated league")
    parser.add_argument("--split", default="", help="JSON file with the names of each part")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--epochs", type=int, default=2)
    told = parser.parse_args()
    for careers in ("all", "earlier"):
        source = {"data": told.data, "split": told.split, "careers": careers}
        run = lockstep.train("cricket", preset=told.preset, epochs=told.epochs, quiet=True, **source)
        losses = [point["eval/log_loss"] for point in run.metrics() if "eval/log_loss" in point]
        splits = open_splits(CricketSettings(**source), World())
        additive = log_loss(BASELINES["additive"](splits.train, splits.validation), splits.validation)
        print(
            f"careers {careers:8} log loss {min(losses):.4f}   additive model {additive:.4f}   {run.name}", flush=True
        )


if __name__ == "__main__":
    main()
