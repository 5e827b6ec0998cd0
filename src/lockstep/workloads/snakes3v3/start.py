"""Where the snakes of a new game lie. R: boards, C: cells, S: bytes of a board, P: players.

The rules draw a cell and a direction for one player after the other, and draw again while the snake would touch one
that lies already. That is a uniform choice among the places that are left, and it is drawn here in one go: the places
are counted, and a random one of them is taken.
"""

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3 import torus
from lockstep.workloads.snakes3v3.chance import pick
from lockstep.workloads.snakes3v3.rules import GameRules, snake_bit


def place(grid: Tensor, words: Tensor, rules: GameRules) -> Tensor:
    """Put the snakes on empty grids (R, S) with words (P, R); returns (R, P, 4): cells, head first, and direction."""
    straights = torus.straights(rules, grid.device)
    bodies = []
    for player in range(rules.players):
        free = grid[:, : rules.cells].view(-1, rules.height, rules.width) == 0
        across = free & free.roll(-1, 2) & free.roll(-2, 2)
        down = free & free.roll(-1, 1) & free.roll(-2, 1)
        so_far = torch.cat((across.flatten(1), down.flatten(1)), dim=1).cumsum(1, dtype=torch.int16)
        # Each line can be taken in two directions.
        number, _ = pick(words[player], 2 * so_far[:, -1].long())
        line = torch.searchsorted(so_far, (number // 2 + 1).to(torch.int16)[:, None]).squeeze(1)
        body = straights.index_select(0, 2 * line + number % 2)
        grid.scatter_(1, body[:, :3], snake_bit(player))
        bodies.append(body)
    return torch.stack(bodies, dim=1)
