"""Initial positions of the snakes. R: boards, H: rows, S: bytes of a board, P: players.

The original draws a cell and a direction for each player in turn, and redraws while the snake would overlap another.
That is a uniform choice among the remaining places. Here it is made without redraws, so that all boards do the same
operations: count the places, and pick one.
"""

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.engine import torus
from lockstep.workloads.snakes3v3.engine.bits import RowBits
from lockstep.workloads.snakes3v3.engine.random_draws import pick
from lockstep.workloads.snakes3v3.engine.rules import GameRules, snake_bit


def place_snakes(grid: Tensor, bits: RowBits, words: Tensor, rules: GameRules) -> tuple[Tensor, Tensor]:
    """Place the snakes on empty grids (R, S), using the random words (P, R).

    Returns (R, P, 4): cells, head first, and direction; and (R, H) the cells that are still free.
    """
    straights = torus.straights(rules, grid.device)
    free = bits.where_empty(grid)
    bodies = []
    for player in range(rules.players):
        # Bit c of a row is set if a straight snake of three can lie on c and the two cells right of it, or below it.
        across = free & bits.sideways(free, 1) & bits.sideways(free, 2)
        down = free & free.roll(-1, 1) & free.roll(-2, 1)
        lines = torch.cat((bits.chunks(across), bits.chunks(down)), dim=1)
        counted = bits.counted(lines)
        # Each line of three cells can be used in two directions.
        number, _ = pick(words[player], 2 * counted[:, -1])
        line = bits.nth(lines, counted, number[:, None] // 2).squeeze(1)
        body = straights.index_select(0, 2 * line + number % 2)
        grid.scatter_(1, body[:, :3], snake_bit(player))
        free = bits.without(free, body[:, :3])
        bodies.append(body)
    return torch.stack(bodies, dim=1), free
