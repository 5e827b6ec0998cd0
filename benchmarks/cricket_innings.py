"""How long matches take to be played out: `python benchmarks/cricket_innings.py RUN MATCH.json... [--games 10000]`.

Seconds of a forecast with that many games, the second time: the first also loads the run, compiles kernels and
estimates how much days differ. A match in its first innings is played for two innings.
"""

import argparse
import time

from lockstep.cli import model as models
from lockstep.cli.model import ModelOptions
from lockstep.workloads import registry
from lockstep.workloads.capabilities import ForecastRequest, ForecastsProgress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("matches", nargs="+")
    parser.add_argument("--games", type=int, default=10_000)
    told = parser.parse_args()
    subject = models.find(told.run, ModelOptions(), [])
    trained = models.load(subject, "auto")
    forecasts = registry.require(subject.workload, ForecastsProgress)
    forecaster = forecasts.forecaster(subject.config, trained.learner, trained.world)
    for match in told.matches:
        for games in (10, told.games, told.games):
            begun = time.perf_counter()
            (found,) = forecaster.forecasts(match, ForecastRequest(games, 1, {}))
            took = time.perf_counter() - begun
        print(f"{match}: {told.games:,} games in {took:.1f} s on {trained.world.device}")
        print(found.table().rpartition("\n\n")[2], flush=True)


if __name__ == "__main__":
    main()
