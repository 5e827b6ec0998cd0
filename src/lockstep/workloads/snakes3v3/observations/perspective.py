"""The players as an observer sees them: its own team first, whichever side it plays. A: observers, P: players."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.rules import BEAN, FIRST_SNAKE, GameRules, snake_bit

MOST_OTHERS = 5
"""Entries for other players; if there are fewer, the last entries stand for nobody."""


@dataclass(frozen=True)
class Perspective:
    """Lookup tables of the other players, for each observer."""

    players: Tensor
    """(A,) the observers."""
    others: Tensor
    """(A, 5) all others: teammates first, then the following teams in cyclic order; P for nobody."""
    rivals: Tensor
    """(A, 2) the first two players of other teams; P for nobody."""
    is_mate: Tensor
    """(A, P) bool: a teammate, not the observer itself."""
    is_enemy: Tensor
    """(A, P) bool: a player of another team."""
    bits: Tensor
    """(A, 2) uint8: the grid bits of the mates' and of the enemies' snakes."""
    codes: Tensor
    """(A, 8) float32: the code of a cell as the observer sees it, as if its team were the first."""


@cache
def perspective(rules: GameRules, players: tuple[int, ...], device: torch.device) -> Perspective:
    """The tables for these observers."""
    # Cached: they are the same at every step, and a CUDA graph must not copy from the host.
    seen = [_see(rules, player) for player in players]
    is_mate = [[other in mates for other in range(rules.players)] for _, mates, _ in seen]
    is_enemy = [[other in enemies for other in range(rules.players)] for _, _, enemies in seen]
    codes = torch.zeros(len(players), FIRST_SNAKE + MOST_OTHERS + 1)
    # Empty cells and beans look the same to all; snakes are numbered from the observer's own team on.
    codes[:, BEAN] = BEAN
    for row, (order, _, _) in enumerate(seen):
        codes[row, [FIRST_SNAKE + player for player in order]] = torch.arange(rules.players) + float(FIRST_SNAKE)
    return Perspective(
        players=selection(players, device),
        others=_table([[*mates, *enemies] for _, mates, enemies in seen], MOST_OTHERS, rules.players, device),
        rivals=_table([enemies for _, _, enemies in seen], 2, rules.players, device),
        is_mate=torch.tensor(is_mate, device=device),
        is_enemy=torch.tensor(is_enemy, device=device),
        bits=torch.tensor(
            [[_bits(mates), _bits(enemies)] for _, mates, enemies in seen], dtype=torch.uint8, device=device
        ),
        codes=codes.to(device),
    )


@cache
def selection(players: tuple[int, ...], device: torch.device) -> Tensor:
    """Players as an index tensor on the device; cached, because a CUDA graph must not copy from the host."""
    return torch.tensor(players, device=device)


def _see(rules: GameRules, player: int) -> tuple[list[int], list[int], list[int]]:
    """All players in the order in which a player sees them, its mates, and its enemies."""
    team = rules.team_of(player)
    order = [member for group in (*rules.teams[team:], *rules.teams[:team]) for member in group]
    mates = [member for member in rules.teams[team] if member != player]
    return order, mates, [member for member in order if member not in rules.teams[team]]


def _table(rows: list[list[int]], width: int, nobody: int, device: torch.device) -> Tensor:
    return torch.tensor([(row + [nobody] * width)[:width] for row in rows], device=device)


def _bits(players: list[int]) -> int:
    return sum(snake_bit(player) for player in players)
