"""Scripted players, as functions of the game. E: boards, A: the players that act, B: beans, C: cells.

They reproduce the players of the competition and the guide, which measure Euclidean distances on the flat board
although it is a torus. All of them can play either side.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.config.fields import nearest
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine import torus
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, GameRules
from lockstep.workloads.snakes3v3.observations.cell_queries import cell_contents
from lockstep.workloads.snakes3v3.observations.perspective import selection

Policy = Callable[[SnakesGame, Sequence[int]], Tensor]
"""Maps a game and some players of one team to their actions, (E, A) int64."""

_TAKEN, _NOWHERE = 1e4, 1e6
"""Penalties larger than any squared distance: for a bean that a teammate has chosen, and for a missing bean."""
_BLOCKED_AT_LEVEL_3 = 5.0
"""Cells of distance that level 3 adds to a blocked direction: 0.5 x 10 in the guide's formula."""


def random_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Uniformly random."""
    # The counter is a tensor because a Python number would be copied to the device, which CUDA graphs do not allow.
    word = random.random_words(game.seed, "snakes3v3-random", game.index, game.clock, torch.zeros_like(game.clock))[0]
    # Two bits of one word for each player, so that players are independent.
    return (word[:, None] >> 2 * selection(tuple(players), game.device)) & 3


def greedy_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean not yet chosen by a teammate, avoiding blocked neighbours. The strongest player."""
    costs, blocked = _ways(game, players, shared=True)
    return costs.masked_fill(blocked, torch.inf).argmin(2)


def level1_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, ignoring obstacles."""
    return _ways(game, players)[0].argmin(2)


def level3_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean; a blocked neighbour counts as five cells further."""
    costs, blocked = _ways(game, players)
    return (costs.sqrt() + _BLOCKED_AT_LEVEL_3 * blocked).argmin(2)


def level4_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, avoiding blocked neighbours."""
    costs, blocked = _ways(game, players)
    return costs.masked_fill(blocked, torch.inf).argmin(2)


def evasive_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, by a move that leaves a second one open, if there is such a move."""
    costs, _ = _ways(game, players)
    return costs.masked_fill(~_leads_on(game, players), torch.inf).argmin(2)


OPPONENTS: dict[str, Policy] = {
    "random": random_action,
    "level1": level1_action,
    "level2": greedy_action,
    "level3": level3_action,
    "level4": level4_action,
    "greedy": greedy_action,
    "evasive": evasive_action,
}
"""Players by name; level2 and greedy are the same."""
SCHEDULES = ("linear", "exponential", "curriculum", "measured")
"""How the level rises over a run. `measured` orders levels by measured strength: level 2 beats all others."""

# The guide's numbers: the fractions of a run at which its curriculum moves to the next level.
_STAGES = (0.10, 0.30, 0.60, 0.85)
# Greedy, level 2, is the strongest because its snakes divide the beans among themselves.
_BY_STRENGTH = (0, 1, 3, 4, 2)


def difficulty(episode: int, max_episodes: int, strategy: str) -> int:
    """The level of the opponent, 0 (random) to 4, in an episode of a run of max_episodes."""
    part = episode / max_episodes
    # Also valid beyond max_episodes, where every strategy stays at its last level.
    stage = sum(part >= end for end in _STAGES)
    if strategy == "linear":
        return min(int(4 * part), 4)
    if strategy == "exponential":
        return min(int(4 * part**1.5), 4)
    if strategy == "curriculum":
        return stage
    if strategy == "measured":
        return _BY_STRENGTH[stage]
    near = nearest(strategy, list(SCHEDULES)) or "curriculum"
    raise UserError(f'schedule "{strategy}": unknown; the nearest is {near}; known: {", ".join(SCHEDULES)}')


def _ways(game: SnakesGame, players: Sequence[int], shared: bool = False) -> tuple[Tensor, Tensor]:
    """For each direction: squared distance from the neighbour cell to the player's bean, and whether it is blocked.

    Both have the shape (E, A, 4). Squared distances are exact integers and order like distances.
    """
    head = _heads(game, players)
    bean = _targets(game, head, shared)
    cells = _beside(game, head)
    return _squared(game.rules, cells, bean[:, :, None].expand_as(cells)), cell_contents(game, cells) > BEAN_BIT


def _targets(game: SnakesGame, head: Tensor, shared: bool) -> Tensor:
    """The nearest bean (E, A) of each head (E, A), the first among equals; C if there is none.

    `shared`: heads choose in player order, each the nearest bean not yet chosen; if all are, the nearest of all.
    """
    beans = game.bean_cells
    distance = _squared(
        game.rules, head[:, :, None].expand(-1, -1, beans.shape[1]), beans[:, None].expand(-1, head.shape[1], -1)
    )
    # argmin returns the first minimum, so ties go to the bean that is first in the list.
    if not shared:
        return beans.gather(1, distance.argmin(2))
    taken, number_of = torch.zeros_like(distance[:, 0]), torch.arange(beans.shape[1], device=game.device)
    chosen = []
    for number in range(head.shape[1]):
        choice = (distance[:, number] + taken).argmin(1, keepdim=True)
        taken = taken + _TAKEN * (number_of == choice)
        chosen.append(beans.gather(1, choice))
    return torch.cat(chosen, dim=1)


def _leads_on(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """(E, A, 4) the first moves found by a search two moves deep; all four if it finds none.

    Like the guide's, the search visits a cell only once: one reached by moving up first does not count for moving left.
    """
    cells = _beside(game, _heads(game, players))
    onward = _beside(game, cells)
    is_open = (cell_contents(game, cells) <= BEAN_BIT)[..., None] & (cell_contents(game, onward) <= BEAN_BIT)
    # A path counts if no earlier path reaches the same cell: a product with the constant table of such pairs.
    reached = is_open.flatten(2).float()
    found = reached * (reached @ _reached_before(game.rules, game.device) == 0)
    leads = found.unflatten(2, (4, 4)).any(3)
    return leads | ~leads.any(2, keepdim=True)


def _heads(game: SnakesGame, players: Sequence[int]) -> Tensor:
    return game.head_cells.index_select(1, selection(tuple(players), game.device))


def _beside(game: SnakesGame, cells: Tensor) -> Tensor:
    """The cells (E, ..., 4) beside cells (E, ...)."""
    return game.neighbours.index_select(0, cells.flatten()).view(*cells.shape, 4)


def _squared(rules: GameRules, here: Tensor, there: Tensor) -> Tensor:
    """Squared distances on the flat board between pairs of cells, float32; exact."""
    table = _squared_table(rules, here.device)
    return table.index_select(0, (here * (rules.cells + 1) + there).flatten()).view(here.shape)


@cache
def _squared_table(rules: GameRules, device: torch.device) -> Tensor:
    """Squared distances at here * (C+1) + there; _NOWHERE for the dummy cell C."""
    cell = torch.arange(rules.cells)
    row, column = (cell // rules.width).float(), (cell % rules.width).float()
    table = torch.full((rules.cells + 1, rules.cells + 1), _NOWHERE)
    table[:-1, :-1] = (row - row[:, None]) ** 2 + (column - column[:, None]) ** 2
    return table.flatten().to(device)


@cache
def _reached_before(rules: GameRules, device: torch.device) -> Tensor:
    """(16, 16) 1 if the two-move path of the column ends in the same cell as the earlier path of the row."""
    # Cell 0 stands for all cells: paths from any cell meet in the same pattern.
    beside = torus.neighbours(rules, torch.device("cpu"))
    second = beside[beside[0]].flatten()
    return (second[:, None] == second).triu(1).float().to(device)
