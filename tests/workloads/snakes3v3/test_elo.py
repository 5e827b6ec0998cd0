"""Ratings: known odds, and intervals that keep their promise."""

from itertools import combinations

import numpy as np
import pytest

from lockstep.workloads.snakes3v3.matches.elo import rate


def test_odds_of_ten_to_one_are_four_hundred_points():
    ratings = rate(np.array([[0.0, 10_000.0], [1000.0, 0.0]]), np.zeros((2, 2)))
    assert ratings.difference(0, 1)[0] == pytest.approx(400, abs=0.5) and ratings.elo.mean() == pytest.approx(0)


def test_the_interval_of_two_players_worked_by_hand():
    # 50 : 50 without draws: the strength's standard error is 1 / sqrt(n / 4), with the imagined game n is 101.
    mean, _, high = rate(np.array([[0.0, 50.0], [50.0, 0.0]]), np.zeros((2, 2))).difference(0, 1)
    assert mean == pytest.approx(0) and high == pytest.approx(1.96 * 173.72 * (4 / 101) ** 0.5, rel=1e-3)
    # Draws spread less: of 100 games 50 drawn, the variance of a result is 1/8 instead of 1/4.
    draws = np.array([[0.0, 50.0], [50.0, 0.0]])
    narrow = rate(np.array([[0.0, 25.0], [25.0, 0.0]]), draws).difference(0, 1)[2]
    assert narrow / high == pytest.approx(0.5**0.5, rel=0.01)


def test_a_player_who_won_everything_has_a_rating_with_a_wide_interval():
    ratings = rate(np.array([[0.0, 20.0], [0.0, 0.0]]), np.zeros((2, 2)))
    mean, low, high = ratings.difference(0, 1)
    assert np.isfinite([mean, low, high]).all() and low > 0 and high - low > 400


def test_a_player_is_rated_by_whom_it_beat():
    # B beats A, C beats B as often; A and C never met.
    wins = np.array([[0.0, 10.0, 0.0], [30.0, 0.0, 10.0], [0.0, 30.0, 0.0]])
    ratings = rate(wins, np.zeros((3, 3)))
    assert ratings.difference(2, 0)[0] == pytest.approx(2 * ratings.difference(1, 0)[0], rel=1e-6)


@pytest.mark.parametrize("drawn", [0.0, 0.4])
def test_of_eight_equal_players_about_one_difference_in_twenty_excludes_zero(drawn):
    draw = np.random.default_rng(7)
    covered = total = 0
    for _ in range(60):
        wins, draws = np.zeros((8, 8)), np.zeros((8, 8))
        for one, other in combinations(range(8), 2):
            won, tied, lost = draw.multinomial(100, [(1 - drawn) / 2, drawn, (1 - drawn) / 2])
            wins[one, other], wins[other, one] = won, lost
            draws[one, other] = draws[other, one] = tied
        ratings = rate(wins, draws)
        for one, other in combinations(range(8), 2):
            _, low, high = ratings.difference(one, other)
            covered, total = covered + (low <= 0 <= high), total + 1
    assert 0.93 <= covered / total <= 0.97


def test_unequal_players_are_covered_too():
    draw = np.random.default_rng(3)
    truth = np.array([0.0, 60.0, 150.0, 300.0])
    covered = total = 0
    for _ in range(150):
        wins = np.zeros((4, 4))
        for one, other in combinations(range(4), 2):
            wins[one, other] = draw.binomial(100, 1 / (1 + 10 ** ((truth[other] - truth[one]) / 400)))
            wins[other, one] = 100 - wins[one, other]
        ratings = rate(wins, np.zeros((4, 4)))
        for one, other in combinations(range(4), 2):
            _, low, high = ratings.difference(one, other)
            covered, total = covered + (low <= truth[one] - truth[other] <= high), total + 1
    assert 0.92 <= covered / total <= 0.98
