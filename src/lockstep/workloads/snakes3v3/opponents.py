"""Players that need no learning, as functions of the boards. E: boards, A: the players that choose, B: beans, C: cells.

They are those of the competition and of the guide; distances are as the crow flies on the flat board, although the
board is a torus. All of them play on either side.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.config.fields import nearest
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3 import torus
from lockstep.workloads.snakes3v3.game import SnakesGame
from lockstep.workloads.snakes3v3.perspective import selection
from lockstep.workloads.snakes3v3.rules import BEAN_BIT, GameRules
from lockstep.workloads.snakes3v3.sight import look

Policy = Callable[[SnakesGame, Sequence[int]], Tensor]
"""A game and some players of one team to their actions, (E, A) int64."""

_SPOKEN_FOR, _NOWHERE = 1e4, 1e6
"""Further than any two cells, even squared: a bean that a mate has chosen, and one that is not there."""
_BLOCKED_AT_LEVEL_3 = 5.0


def random_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Each of the four ways is as likely."""
    # The draw is a tensor because a number would be copied to the device, which a captured graph may not do.
    word = random.words(game.seed, "snakes3v3-random", game.index, game.clock, torch.zeros_like(game.clock))[0]
    return (word[:, None] >> 2 * selection(tuple(players), game.device)) & 3


def greedy_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean that no mate before has chosen, round what is directly in the way; the strongest."""
    costs, blocked = _ways(game, players, shared=True)
    return costs.masked_fill(blocked, torch.inf).argmin(2)


def level1_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, through anything."""
    return _ways(game, players)[0].argmin(2)


def level3_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, or round what is in the way if that costs less than five cells."""
    costs, blocked = _ways(game, players)
    return (costs.sqrt() + _BLOCKED_AT_LEVEL_3 * blocked).argmin(2)


def level4_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, round what is directly in the way."""
    costs, blocked = _ways(game, players)
    return costs.masked_fill(blocked, torch.inf).argmin(2)


def evasive_action(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """Towards the nearest bean, by a way that goes on for two moves if there is one."""
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
"""By name; level 2 is the greedy one."""
SCHEDULES = ("linear", "exponential", "curriculum", "measured")
"""How the level rises over a run. `measured` ends with level 2, which beats all the others."""

_STAGES = (0.10, 0.30, 0.60, 0.85)
_BY_STRENGTH = (0, 1, 3, 4, 2)


def difficulty(episode: int, max_episodes: int, strategy: str) -> int:
    """The level of the opponent, 0 (random) to 4, in an episode of a run of max_episodes."""
    part = episode / max_episodes
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
    """For each way to go: the squared distance from there to the player's bean, and whether blocked: (E, A, 4) each."""
    head = _heads(game, players)
    bean = _targets(game, head, shared)
    cells = _beside(game, head)
    return _squared(game.rules, cells, bean[:, :, None].expand_as(cells)), look(game, cells) > BEAN_BIT


def _targets(game: SnakesGame, head: Tensor, shared: bool) -> Tensor:
    """The nearest bean (E, A) of each head (E, A); the first of the nearest, C where there is none.

    Shared: each head takes the nearest of those that are left, and if none is left the nearest of all.
    """
    beans = game.bean_cells
    distance = _squared(
        game.rules, head[:, :, None].expand(-1, -1, beans.shape[1]), beans[:, None].expand(-1, head.shape[1], -1)
    )
    if not shared:
        return beans.gather(1, distance.argmin(2))
    taken, number_of = torch.zeros_like(distance[:, 0]), torch.arange(beans.shape[1], device=game.device)
    chosen = []
    for number in range(head.shape[1]):
        choice = (distance[:, number] + taken).argmin(1, keepdim=True)
        taken = taken + _SPOKEN_FOR * (number_of == choice)
        chosen.append(beans.gather(1, choice))
    return torch.cat(chosen, dim=1)


def _leads_on(game: SnakesGame, players: Sequence[int]) -> Tensor:
    """(E, A, 4) the first moves of the search two moves deep; all where it finds nothing.

    The search visits a cell once: what the way up reaches in two moves is no credit to the way left.
    """
    cells = _beside(game, _heads(game, players))
    onward = _beside(game, cells)
    is_open = (look(game, cells) <= BEAN_BIT)[..., None] & (look(game, onward) <= BEAN_BIT)
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
    """At here * (C+1) + there."""
    cell = torch.arange(rules.cells)
    row, column = (cell // rules.width).float(), (cell % rules.width).float()
    table = torch.full((rules.cells + 1, rules.cells + 1), _NOWHERE)
    table[:-1, :-1] = (row - row[:, None]) ** 2 + (column - column[:, None]) ** 2
    return table.flatten().to(device)


@cache
def _reached_before(rules: GameRules, device: torch.device) -> Tensor:
    """(16, 16) ones where the second move of the column leads to the cell of an earlier one, in the row."""
    beside = torus.neighbours(rules, torch.device("cpu"))
    second = beside[beside[0]].flatten()
    return (second[:, None] == second).triu(1).float().to(device)
