"""Our own observation: relative, torus-aware, scaled to about -1 to 1. E: boards, A: observers, P: players, B: beans.

For each player: itself (8 numbers), the four directions it could take (9 each), the beans sorted by distance (6 each),
the other players, teammates first, each group sorted by distance (7 each), and the 40 cells up to four moves away (4
each). The other side sees the same with the sides exchanged. `competition/submission.py` computes the same numbers.
"""

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, GameRules
from lockstep.workloads.snakes3v3.observations.cell_queries import body_parts, cell_contents, offsets, steps_to_bean
from lockstep.workloads.snakes3v3.observations.perspective import MOST_OTHERS, Perspective

MOST_BEANS = 5
_RADIUS = 4
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
_REACH = range(-_RADIUS, _RADIUS + 1)
_NEAR = [(down, right) for down in _REACH for right in _REACH if 0 < abs(down) + abs(right) <= _RADIUS]
"""The cells up to four moves away."""
_SEARCH_DEPTH = 8
"""Moves after which the search for a bean ends."""
_LONG = 20
"""Scale of lengths and leads: a long snake, or a large lead, is about 1."""
RICH_SIZE = 8 + 4 * 9 + MOST_BEANS * 6 + MOST_OTHERS * 7 + 4 * len(_NEAR)
"""Size of one observation."""


@dataclass
class _Surroundings:
    """The cells near each head, N of them, as planes (E, A, N) float32."""

    stays: Tensor
    """For how many more moves a body remains on the cell."""
    mates: Tensor
    """1 for the head of a mate."""
    enemies: Tensor
    """1 for the head of an enemy."""
    beans: Tensor
    is_open: Tensor
    """1 where there is no body."""


def rich(game: SnakesGame, view: Perspective) -> Tensor:
    """The observations of the players: (E, A, RICH_SIZE) float32."""
    near = _surroundings(game, view)
    planes = (near.stays.clamp(max=2 * _RADIUS) / (2 * _RADIUS), near.mates, near.enemies, near.beans)
    return torch.cat(
        (_itself(game, view), _ways(game, view, near), _beans(game, view), _others(game, view), *planes), 2
    )


def _surroundings(game: SnakesGame, view: Perspective) -> _Surroundings:
    heads = game.head_cells[:, view.players]
    cells = _near_cells(game.rules, game.device).index_select(0, heads.flatten()).view(game.count, -1)
    content = cell_contents(game, cells)
    behind, stays = body_parts(game, cells, content)
    shape = (game.count, len(view.players), len(_NEAR))
    # Heads are the parts at distance 0; their bits show which side they belong to.
    head = (content * (behind == 0)).view(shape)
    mates, enemies = ((head & view.bits[:, side, None]) > 0 for side in range(2))
    planes = (stays.view(shape), mates, enemies, content.view(shape) == BEAN_BIT, content.view(shape) <= BEAN_BIT)
    return _Surroundings(*(plane.float() for plane in planes))


def _itself(game: SnakesGame, view: Perspective) -> Tensor:
    """Direction, length, time left, the team's score and its lead: (E, A, 8)."""
    direction = _one_hot(game.directions[:, view.players])
    score = game.score.float()
    own = score[:, view.players]
    mates, enemies = score @ view.is_mate.T.float(), score @ view.is_enemy.T.float()
    left = 1 - (game.time - 1).float() / game.rules.max_steps
    numbers = (own / _LONG, left[:, None].expand_as(own), (own + mates) / _LONG, (own + mates - enemies) / _LONG)
    return torch.cat((direction, torch.stack(numbers, dim=2)), dim=2)


def _ways(game: SnakesGame, view: Perspective, near: _Surroundings) -> Tensor:
    """For each direction: what is there, who else may move there, and how much room follows: (E, A, 4*9)."""
    # Sums over near cells are matrix products with constant tables of zeros and ones, fast on any device.
    beside, onward, beyond = _ways_among_near_cells(game.device)
    # (N, 4) the cells beside each target cell: a head on one of them could move to the target in the same step.
    coming = onward.unflatten(1, (4, 4)).sum(2)
    cells = game.neighbours.index_select(0, game.head_cells[:, view.players].flatten()).view(game.count, -1)
    to_bean = steps_to_bean(game, cells, _SEARCH_DEPTH).view(game.count, -1, 4)
    stays = near.stays @ beside
    after_next = (near.is_open @ onward) * (near.is_open @ beyond)
    numbers = (
        _one_hot(game.directions[:, view.players] ^ 1),
        stays > 1,
        stays == 1,  # A tail: it leaves the cell, unless its snake eats.
        near.mates @ coming / 2,
        near.enemies @ coming / 2,
        near.beans @ beside,
        near.is_open @ coming / 3,
        after_next.unflatten(2, (4, 4)).sum(3) / 9,
        to_bean / _SEARCH_DEPTH,
    )
    return torch.stack([number.float() for number in numbers], dim=3).flatten(2)


def _beans(game: SnakesGame, view: Perspective) -> Tensor:
    """For each bean: its offset, and how much later teammates and enemies could reach it: (E, A, 5*6)."""
    rules = game.rules
    down, right = offsets(rules, game.head_cells, game.bean_cells)
    steps = down.abs() + right.abs()
    far = rules.width // 2 + rules.height // 2
    own = steps[:, view.players]
    # Players outside the group are moved beyond any distance on the board, so that the minimum ignores them.
    distant = (2.0 * far * ~side[:, :, None] for side in (view.is_mate, view.is_enemy))
    mates, enemies = ((steps[:, None] + beyond).amin(2).clamp(max=2 * far) for beyond in distant)
    there = (game.bean_cells < rules.cells)[:, None].expand_as(own).float()
    ways = (2 * down[:, view.players] / rules.height, 2 * right[:, view.players] / rules.width)
    table = torch.stack((there, *ways, own / far, (mates - own) / far, (enemies - own) / far), dim=3)
    return _in_order(table * there[..., None], own, MOST_BEANS)


def _others(game: SnakesGame, view: Perspective) -> Tensor:
    """For each other player: mate or enemy, the way to its head, its length and direction: (E, A, 5*7)."""
    rules = game.rules
    down, right = offsets(rules, game.head_cells[:, view.players], game.head_cells)
    steps = down.abs() + right.abs()
    facing = (
        _moves(game.device)
        .index_select(0, game.directions.flatten())
        .view(game.count, 1, -1, 2)
        .expand(*steps.shape, 2)
    )
    mate, enemy = view.is_mate.float().expand_as(steps), view.is_enemy.float().expand_as(steps)
    far = rules.width // 2 + rules.height // 2
    lengths = (game.lengths / _LONG)[:, None].expand_as(steps)
    numbers = (mate - enemy, 2 * down / rules.height, 2 * right / rules.width, steps / far, lengths)
    table = torch.cat((torch.stack(numbers, dim=3), facing.expand(*steps.shape, 2)), dim=3) * (mate + enemy)[..., None]
    # Sort keys: mates by distance, then enemies by distance, then the player itself, whose row is zeros.
    return _in_order(table, steps + 4 * far * (1 - mate) + 4 * far * (1 - mate - enemy), MOST_OTHERS)


@cache
def _moves(device: torch.device) -> Tensor:
    """(4, 2) rows and columns of each move."""
    return torch.tensor(_MOVES, dtype=torch.float32, device=device)


def _one_hot(direction: Tensor) -> Tensor:
    """(E, A) to (E, A, 4)."""
    return torch.eye(4, device=direction.device).index_select(0, direction.flatten()).view(*direction.shape, 4)


def _in_order(table: Tensor, order: Tensor, count: int) -> Tensor:
    """The first `count` rows of a table (E, A, N, F), sorted by order (E, A, N); zeros if there are fewer."""
    # A stable sort, so that ties have the same result on every device.
    rank = order.argsort(dim=2, stable=True)[:, :, :count]
    table = table.gather(2, rank[..., None].expand(-1, -1, -1, table.shape[3]))
    return F.pad(table, (0, 0, 0, count - table.shape[2])).flatten(2)


@cache
def _near_cells(rules: GameRules, device: torch.device) -> Tensor:
    """(C, N) the cells near each cell."""
    moves, cell = torch.tensor(_NEAR), torch.arange(rules.cells)[:, None]
    row, column = cell // rules.width + moves[:, 0], cell % rules.width + moves[:, 1]
    return (row % rules.height * rules.width + column % rules.width).to(device)


@cache
def _ways_among_near_cells(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tables over the N near cells with ones for the cells that moves lead to.

    (N, 4): the first move, each way. (N, 4*4): the second move, each way. (N, 4*4): the third move, all ways together,
    without returning to the cell of the first move. The head's own cell is not a near cell, so it never counts.
    """

    def ones(cells: list[tuple[int, int]]) -> Tensor:
        return torch.tensor([float(cell in cells) for cell in _NEAR])

    def beside(cell: tuple[int, int]) -> list[tuple[int, int]]:
        return [(cell[0] + down, cell[1] + right) for down, right in _MOVES]

    second = [(way, cell) for way in _MOVES for cell in beside(way)]
    third = [[further for further in beside(cell) if further != way] for way, cell in second]
    tables = [[way] for way in _MOVES], [[cell] for _, cell in second], third
    first, onward, beyond = (torch.stack([ones(cells) for cells in table], dim=1).to(device) for table in tables)
    return first, onward, beyond
