"""A side's day: what all balls of an innings have in common beyond what the network sees before each.

Balls that are drawn one by one vary independently given the features. Real innings vary more: a pitch, a plan or a
good day moves all balls of an innings a little in the same direction. Played out without that, scores lie too close
together. Here it is one number z for each innings, normal with mean 0, that multiplies the odds of an outcome by
exp(z x its runs).

M: samples, B: games.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from lockstep.compute.device_array import Array, tensor_of
from lockstep.compute.random import normal
from lockstep.workloads.cricket.columns import OUTCOME_RUNS
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.matches.match import POWERPLAY_OVERS

NO_SPREAD = (0.0, 0.0)
_MATCHES = 256
"""Matches that the spread is estimated on: enough to know it to a fifth, in some seconds on a CPU."""
_RUNS = torch.tensor(OUTCOME_RUNS, dtype=torch.float64)


def spread(table: DeliveryTable, predict: Callable[[DeliveryTable], Tensor]) -> tuple[float, float]:
    """The standard deviation of z in first and second innings, estimated on matches that were not trained on.

    `predict`: the probabilities (M, 7) of a table's samples. Powerplays are left out, since what an innings shows in
    its first overs is seen by the network later: of interest is what it does not see even then.
    """
    some = table.match % max(len(table.matches) // _MATCHES, 1) == 0
    rows = table.sample[(some & (table.innings < 2) & (table.over >= POWERPLAY_OVERS))[table.sample]]
    p = predict(replace(table, sample=rows)).double()
    mean = p @ _RUNS
    variance, surprise = p @ _RUNS**2 - mean**2, _RUNS[table.label[rows].cpu()] - mean
    innings, match = table.innings[rows].cpu(), table.match[rows].cpu()
    sums = [
        [torch.bincount(match[own], values[own]) for values in (surprise, variance)]
        for own in (innings == 0, innings == 1)
    ]
    first, second = (spread_of(*pair) for pair in sums)
    return first, second


def spread_of(off: Tensor, expected: Tensor) -> float:
    """The standard deviation of z, from the runs that innings (N,) are off by, and the sums of their balls' variances.

    Given z, an innings is off by about z V runs, V being that sum; so the mean square of what it is off by is
    V + spread^2 V^2, and the first term alone if balls are independent.
    """
    squares = (expected**2).sum()
    return float(((off**2 - expected).sum() / squares).clamp(min=0.0).sqrt()) if squares > 0 else 0.0


def drawn(seed: int, games: Array, innings: int, deviation: float) -> Tensor:
    """(B,): z of an innings of the games of these numbers (B,)."""
    return normal(seed, "cricket day", tensor_of(games), innings).double() * deviation


def on_this_day(probabilities: Tensor, z: Tensor) -> Tensor:
    """Probabilities (B, 7) of the outcomes on days (B,), in double precision."""
    tilted = probabilities.double() * (z[:, None] * _RUNS.to(z.device)).exp()
    return tilted / tilted.sum(1, keepdim=True)
