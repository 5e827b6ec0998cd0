"""Elo ratings of several players from the games between them, with intervals. P: players."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SCALE = 400 / math.log(10)
"""Elo points of one unit of strength: 400 points are odds of ten to one."""
_Z = 1.959964
_PRIOR = 1.0
"""Imagined drawn games between every two players that met: without them a player who won all games has no rating."""
_MOST_ROUNDS = 100

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Ratings:
    """The players' ratings; their mean is zero."""

    elo: Matrix
    """(P,)"""
    covariance: Matrix
    """(P, P), in Elo points squared."""

    def interval(self, player: int) -> tuple[float, float]:
        """The 95% interval of a rating, relative to the mean of all players."""
        reach = _Z * math.sqrt(max(float(self.covariance[player, player]), 0.0))
        return float(self.elo[player]) - reach, float(self.elo[player]) + reach

    def difference(self, one: int, other: int) -> tuple[float, float, float]:
        """The first player's rating minus the second's, with the ends of its 95% interval."""
        # Ratings depend on each other, so this is not to be had from the two intervals.
        contrast = np.zeros(len(self.elo))
        contrast[one], contrast[other] = 1.0, -1.0
        mean, variance = float(contrast @ self.elo), float(contrast @ self.covariance @ contrast)
        reach = _Z * math.sqrt(max(variance, 0.0))
        return mean, mean - reach, mean + reach


def rate(wins: Matrix, draws: Matrix) -> Ratings:
    """Fit ratings by the model of Bradley and Terry; `wins` (P, P): games that the row's player won, `draws` alike.

    A draw counts as half a win. Intervals come from the curvature of the likelihood, corrected for draws, which spread
    less than wins and losses.
    """
    met = wins + wins.T + draws > 0
    games = wins + wins.T + draws + _PRIOR * met
    points = wins + (draws + _PRIOR * met) / 2
    strength = np.zeros(len(wins))
    for _ in range(_MOST_ROUNDS):
        chance = 1 / (1 + np.exp(strength[None, :] - strength[:, None]))
        gradient = (points - games * chance).sum(1)
        # The likelihood does not change if all strengths grow alike, hence the pseudo-inverse. Steps are bounded:
        # Newton's method may jump far from a flat start.
        step = np.linalg.pinv(_curvature(games * chance * (1 - chance))) @ gradient
        strength = strength + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    chance = 1 / (1 + np.exp(strength[None, :] - strength[:, None]))
    spread = games * chance * (1 - chance)
    inverse = np.linalg.pinv(_curvature(spread))
    # The variance of a result (0, a half or 1) is p(1 - p) - draws / 4; rounding must not make it negative.
    observed = np.maximum(spread - draws / 4, 0.05 * spread)
    covariance = inverse @ _curvature(observed) @ inverse
    return Ratings(SCALE * (strength - strength.mean()), SCALE**2 * covariance)


def _curvature(weights: Matrix) -> Matrix:
    """The Laplacian of a graph with these weights (P, P)."""
    weights = weights * (1 - np.eye(len(weights)))
    return np.diag(weights.sum(1)) - weights
