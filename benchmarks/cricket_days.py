"""How much innings vary beyond the forecasts of their single balls: `python benchmarks/cricket_days.py RUN`.

On the run's validation matches, after the powerplay. `ratio`: the mean square of what innings are off by, over the sum
of their balls' variances; 1 if balls are independent given what the network sees. `held`: innings within the 90%
interval of a normal distribution, first with independent balls, then with a day of its own for each innings, whose
spread is estimated on the half of the matches that the innings is not in. Last, whether the two innings of a match are
off in the same direction.
"""

import argparse

import numpy as np
import torch

from lockstep.cli import model as models
from lockstep.cli.model import ModelOptions
from lockstep.distributed.world import World
from lockstep.workloads.cricket.columns import OUTCOME_RUNS
from lockstep.workloads.cricket.data.preparation import open_store
from lockstep.workloads.cricket.live.day import spread_of
from lockstep.workloads.cricket.matches.match import POWERPLAY_OVERS
from lockstep.workloads.cricket.reports.assess import Predictor

WITHIN = 1.645
"""Standard deviations on either side that hold 90% of a normal distribution."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--part", default="validation")
    told = parser.parse_args()
    subject = models.find(told.run, ModelOptions(), [])
    trained = models.load(subject, "auto")
    trained.learner.model.eval()
    table = open_store(subject.config.workload, World()).tables[told.part]
    p = Predictor(subject.config, trained.learner, trained.world).of_table(table.to(trained.world.device)).double()
    runs = torch.tensor(OUTCOME_RUNS, dtype=torch.float64)
    mean, rows = p @ runs, table.sample
    surprise, variance = runs[table.label[rows]] - mean, p @ runs**2 - mean**2
    found = []
    for innings in (0, 1):
        own = (table.innings[rows] == innings) & (table.over[rows] >= POWERPLAY_OVERS)
        sums = (torch.bincount(table.match[rows][own], v[own], len(table.matches)) for v in (surprise, variance))
        off, expected = (values.numpy() for values in sums)
        found.append((off, expected))
        tell(innings, off[expected > 0], expected[expected > 0])
    both = (found[0][1] > 0) & (found[1][1] > 0)
    print(f"correlation of the two innings of a match: {np.corrcoef(found[0][0][both], found[1][0][both])[0, 1]:+.3f}")


def tell(innings: int, off: np.ndarray, expected: np.ndarray) -> None:
    """`off`: runs by which each innings differs from its forecast; `expected`: sums of its balls' variances."""
    half = np.random.default_rng(0).permutation(len(off)) % 2
    spread = [spread_of(torch.tensor(off[half == h]), torch.tensor(expected[half == h])) for h in (0, 1)]
    other = np.where(half == 0, spread[1], spread[0])
    held = [np.mean(off**2 < WITHIN**2 * v) for v in (expected, expected + other**2 * expected**2)]
    print(
        f"{('first', 'second')[innings]} innings: {len(off)}, ratio {(off**2).mean() / expected.mean():.3f}, "
        f"spread of the halves {spread[0]:.4f} and {spread[1]:.4f}, "
        f"held {held[0]:.1%} with independent balls, {held[1]:.1%} with days"
    )


if __name__ == "__main__":
    main()
