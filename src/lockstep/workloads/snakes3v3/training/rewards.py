"""Rewards for training. E: boards, A: the team's players, P: players, B: beans.

The raw rewards of an episode sum to a snake's score, so the scores show which team is ahead. As in the original, heads
and beans are those after the step: dead snakes have respawned, and eaten beans have been replaced.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.game import GameStep, SnakesGame
from lockstep.workloads.snakes3v3.observations.perspective import selection

EVEN, WON, LOST, AHEAD, BEHIND = range(5)
"""Standing of a team: won or lost at the end of a game, ahead or behind before it, even at any time."""

# Bonus for each standing, in the order above.
_JIDI = (0.0, 50.0, -25.0, 10.0, -5.0)
_GUIDE = (0.0, 100.0, -100.0, 30.0, -30.0)


def standing(own: Tensor, rival: Tensor, ended: Tensor) -> Tensor:
    """Standing of a team, from its returns so far and its rival's, (E,) each: (E,) int64, one of the five above."""
    leader = torch.where(ended, WON, AHEAD)
    trailer = torch.where(ended, LOST, BEHIND)
    return torch.where(own > rival, leader, torch.where(own < rival, trailer, EVEN))


def bean_distance(heads: Tensor, beans: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Distance from each head (E, A, 2) to the nearest bean (E, B, 2) on the flat board: (E, A); 0 without a bean."""
    gaps = (heads[:, :, None] - beans[:, None]).to(dtype)
    # Missing beans have negative coordinates.
    distance = gaps.square().sum(3).sqrt().masked_fill((beans[:, None, :, 0] < 0), torch.inf).amin(2)
    return distance.masked_fill(distance.isinf(), 0.0)


def jidi(reward: Tensor, heads: Tensor, beans: Tensor, status: Tensor) -> Tensor:
    """The competition's reward: a bonus by standing; 20 for a bean, else minus the distance to one; -10 for a loss."""
    # A death at length 3 has a raw reward of 0 and so costs nothing here, as in the original.
    without_bean = -bean_distance(heads, beans, reward.dtype) - 10.0 * (reward < 0)
    return _by_standing(_JIDI, status) + torch.where(reward > 0, 20.0, without_bean)


def guide(reward: Tensor, dead: Tensor, status: Tensor) -> Tensor:
    """The guide's reward: a bonus by standing, 30 for a bean, 0.1 for surviving a step, -50 for a death (E, A)."""
    # As documented; the guide's program has the last condition inverted (docs/decisions.md).
    return _by_standing(_GUIDE, status) + 30.0 * (reward > 0) + torch.where(dead, -50.0, 0.1)


def final(reward: Tensor, heads: Tensor, beans: Tensor, status: Tensor) -> Tensor:
    """The guide's later reward: jidi, plus up to 0.1 for being near a bean, 0.1 for no loss, 0.05 for a bean."""
    near = 0.1 / (bean_distance(heads, beans, reward.dtype) + 1.0) * (reward <= 0)
    return jidi(reward, heads, beans, status) + near + 0.1 * (reward >= 0) + 0.05 * (reward > 0)


def lead(reward: Tensor, enemies: Tensor) -> Tensor:
    """Our own reward: what a snake gained (E, A) minus the mean of what its enemies (E, N) gained.

    Summed over a team with as many players as its enemies, it is the change of the team's lead.
    """
    return reward - enemies.mean(1, keepdim=True)


Reward = Callable[[SnakesGame, GameStep, Sequence[int]], Tensor]


def _raw(game: SnakesGame, done: GameStep, players: Sequence[int]) -> Tensor:
    return _of(done.reward, players)


def _plain(game: SnakesGame, done: GameStep, players: Sequence[int]) -> Tensor:
    enemies = [player for player in range(game.rules.players) if player not in players]
    return lead(_raw(game, done, players), _of(done.reward, enemies))


def _jidi(game: SnakesGame, done: GameStep, players: Sequence[int]) -> Tensor:
    return jidi(_raw(game, done, players), _of(game.heads, players), game.beans, _status(game, done, players))


def _guide(game: SnakesGame, done: GameStep, players: Sequence[int]) -> Tensor:
    return guide(_raw(game, done, players), _of(done.dead, players), _status(game, done, players))


def _final(game: SnakesGame, done: GameStep, players: Sequence[int]) -> Tensor:
    return final(_raw(game, done, players), _of(game.heads, players), game.beans, _status(game, done, players))


REWARDS: dict[str, Reward] = {"raw": _raw, "plain": _plain, "jidi": _jidi, "guide": _guide, "final": _final}
"""By name: the rewards (E, A) of a team's players for a step. Call them before restarting boards that ended."""


def _status(game: SnakesGame, done: GameStep, players: Sequence[int]) -> Tensor:
    """Standing of the players' team against the best other team."""
    score = game.score
    others = [team for team in game.rules.teams if not set(team) & set(players)]
    rival = torch.stack([_of(score, team).sum(1) for team in others]).amax(0)
    return standing(_of(score, players).sum(1), rival, done.ended)


def _of(values: Tensor, players: Sequence[int]) -> Tensor:
    """The values (E, P, ...) of these players."""
    return values.index_select(1, selection(tuple(players), values.device))


def _by_standing(values: tuple[float, ...], status: Tensor) -> Tensor:
    return _values(values, status.device).index_select(0, status)[:, None]


@cache
def _values(values: tuple[float, ...], device: torch.device) -> Tensor:
    # Cached, because a CUDA graph must not copy from the host.
    return torch.tensor(values, device=device)
