"""A side's day: estimated from innings whose spread is known, and felt by every ball of an innings played out."""

import numpy as np
import pytest
import torch

from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.tabulate import describe, learn
from lockstep.workloads.cricket.live import day
from lockstep.workloads.cricket.matches.league import simulate
from lockstep.workloads.cricket.matches.scorebook import collect

P = torch.tensor([0.4, 0.3, 0.0, 0.0, 0.2, 0.05, 0.05], dtype=torch.float64)


def innings_of(z, balls=84):
    """What innings with these z (N,) are off by, and the sums of variances, by a network that knows P alone."""
    p = day.on_this_day(P.expand(len(z), 7), z)
    outcome = torch.multinomial(p, balls, replacement=True, generator=torch.Generator().manual_seed(1))
    mean = P @ day._RUNS
    variance = balls * (P @ day._RUNS**2 - mean**2)
    return (day._RUNS[outcome] - mean).sum(1), variance.expand(len(z))


def test_a_day_multiplies_the_odds_of_an_outcome_by_its_runs():
    tilted = day.on_this_day(P[None], torch.tensor([0.1], dtype=torch.float64))[0]
    # A four against a single: three runs more.
    assert float(tilted[4] / tilted[1]) == pytest.approx(0.2 / 0.3 * np.exp(0.3))
    assert float(tilted.sum()) == pytest.approx(1.0)
    assert torch.equal(day.on_this_day(P[None], torch.zeros(1, dtype=torch.float64)), P[None] / P.sum())


@pytest.mark.parametrize("deviation", [0.0, 0.05, 0.1])
def test_the_spread_of_days_is_found_in_innings_that_were_drawn_with_it(deviation):
    z = day.drawn(3, np.arange(4000), 0, deviation)
    # The tilt is linear in z only for a small one.
    assert day.spread_of(*innings_of(z)) == pytest.approx(deviation, abs=0.008)


@pytest.fixture(scope="module")
def table():
    """Matches of the simulated league, whose balls are independent given the skills."""
    board = Scoreboard(collect(list(simulate(12, seed=5))))
    return describe(board, learn(board), out_of_fold=True)


def test_the_spread_is_estimated_on_balls_after_the_powerplay_of_the_two_innings(table):
    asked = []

    def predict(part):
        asked.append(part.sample)
        return P.expand(len(part.sample), 7)

    first, second = day.spread(table, predict)
    (rows,) = asked
    assert int(table.over[rows].min()) == 6 and set(table.innings[rows].tolist()) == {0, 1}
    assert 0 <= first < 0.2 and 0 <= second < 0.2
