"""Plays a match out from its present ball, many times, and says how the games ended. B: games."""

from dataclasses import dataclass

import numpy as np
import torch

from lockstep.compute.device_array import Array, array_of, tensor_of
from lockstep.workloads.cricket.live.games import Games, Model, side_of
from lockstep.workloads.cricket.live.situation import BALLS, NextBall, Situation
from lockstep.workloads.cricket.matches.match import OVERS

_BATCH, _BATCH_ON_GPU = 4096, 10_000
"""Games played at once; more are played one batch after the other, so that memory stays bounded. A GPU computes more of
them in the same time, but not if the network reads earlier balls, whose memory grows with them."""


@dataclass(frozen=True)
class Endings:
    """How the games ended."""

    first: np.ndarray
    """(B,): runs of the first innings; all the same once it is over."""
    second: np.ndarray
    """(B,): runs of the second innings."""
    target: np.ndarray
    """(B,): runs that the second innings needs to win."""

    @property
    def ties(self) -> float:
        """Probability of a tie, which a super over decides."""
        return float((self.second == self.target - 1).mean())

    @property
    def chase_wins(self) -> float:
        """Probability that the side that bats second wins; a tie counts half."""
        return float((self.second >= self.target).mean()) + self.ties / 2


def play_out(at: Situation, ball: NextBall, model: Model, expected: np.ndarray, games: int, seed: int) -> Endings:
    """Play a match from its present ball to the end, `games` times, on the model's device.

    `expected`: (deliveries of the match, 7) probabilities by the additive model.
    """
    device = model.knowledge.device
    size = _BATCH_ON_GPU if device.type == "cuda" and not model.reads_balls else _BATCH
    # In any batch a game has random numbers of its own.
    numbers = torch.arange(games, device=device).split(size)
    parts = [batch(at, ball, model, expected, array_of(those), seed) for those in numbers]
    return Endings(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "second", "target")))


def batch(at: Situation, ball: NextBall, model: Model, expected: np.ndarray, games: Array, seed: int) -> Endings:
    """Play the games of these numbers."""
    now, every, no_target = at.match.rows[:, 0] == at.innings, np.arange(len(games), like=games), games * 0
    side = side_of(at, at.batting, model.index, model.knowledge, ball)
    current = Games(at, side, games, at.innings, no_target + at.target, at.allotted)
    if at.innings == 1:
        first = Games(at, side, games, 0, no_target, OVERS * BALLS)
        first.load(at.match.rows[~now], expected[~now])
        current.carry(first)
        current.resume(ball, expected[now])
        current.play(model, seed, first.board(every, first.played))
        return _ended(first.runs, current.runs, current.target)
    current.resume(ball, expected[now])
    current.play(model, seed, None)
    target = current.runs + at.match.innings[0].penalty_runs + 1
    answer = side_of(at, at.other(at.batting), model.index, model.knowledge)
    chase = Games(at, answer, games, 1, target, OVERS * BALLS)
    chase.carry(current)
    chase.begin(seed)
    chase.play(model, seed, current.board(every, current.played))
    return _ended(current.runs, chase.runs, target)


def _ended(*runs: Array) -> Endings:
    return Endings(*(tensor_of(part).cpu().numpy() for part in runs))
