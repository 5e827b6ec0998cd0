"""Plays a match out from its present ball, many times, and says how the games ended. B: games."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from lockstep.workloads.cricket.live.games import Games, Model, side_of
from lockstep.workloads.cricket.live.situation import BALLS, NextBall, Situation
from lockstep.workloads.cricket.matches.match import OVERS

_BATCH = 4096
"""Games played at once; more are played one batch after the other, so that memory stays bounded."""
_WORKERS_BESIDE_GPU = 8
"""What threads do in Python they do one at a time, so that more gain nothing."""


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


def workers_beside(device: torch.device) -> int:
    """Threads that play games out while the network computes on this device.

    The number of cores or of PyTorch's threads does not matter: the size of a batch follows from the number of workers,
    and how the network rounds may follow from that. A forecast is the same on any machine with this kind of device.
    """
    # Features are made on the CPU. Beside a GPU its cores are free for that; on a CPU the network needs them.
    return _WORKERS_BESIDE_GPU if device.type == "cuda" else 1


def play_out(
    at: Situation, ball: NextBall, model: Model, expected: np.ndarray, games: int, seed: int, workers: int = 1
) -> Endings:
    """Play a match from its present ball to the end, `games` times.

    `expected`: (deliveries of the match, 7) probabilities by the additive model. `workers`: threads that share the
    games out among them.
    """
    size = min(_BATCH, -(-games // workers))
    numbers = [np.arange(start, min(start + size, games)) for start in range(0, games, size)]
    # Threads, since NumPy computes the features without holding Python's lock. In any batch a game has random numbers
    # of its own.
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(lambda those: _batch(at, ball, model, expected, those, seed), numbers))
    return Endings(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "second", "target")))


def _batch(at: Situation, ball: NextBall, model: Model, expected: np.ndarray, games: np.ndarray, seed: int) -> Endings:
    """Play the games of these numbers."""
    now, every = at.match.rows[:, 0] == at.innings, np.arange(len(games))
    side = side_of(at, at.batting, model.index, model.knowledge, ball)
    current = Games(at, side, games, at.innings, np.full(len(games), at.target), at.allotted)
    if at.innings == 1:
        first = Games(at, side, games, 0, np.zeros(len(games), np.int64), OVERS * BALLS)
        first.load(at.match.rows[~now], expected[~now])
        current.carry(first)
        current.resume(ball, expected[now])
        current.play(model, seed, first.board(every, first.played))
        return Endings(first.runs, current.runs, current.target)
    current.resume(ball, expected[now])
    current.play(model, seed, None)
    target = current.runs + at.match.innings[0].penalty_runs + 1
    answer = side_of(at, at.other(at.batting), model.index, model.knowledge)
    chase = Games(at, answer, games, 1, target, OVERS * BALLS)
    chase.carry(current)
    chase.begin(seed)
    chase.play(model, seed, current.board(every, current.played))
    return Endings(current.runs, chase.runs, target)
