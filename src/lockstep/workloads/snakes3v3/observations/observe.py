"""Observation vectors. E: boards, A: observing players, P: players, B: beans.

`jidi26`, `guide30` and `final35` reproduce the vectors of the competition and of two programs derived from it exactly;
`rich` is our own. All work for either side: a player sees its own team where the first team sees itself.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.config.fields import nearest
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.observations.cell_queries import cell_contents, offsets
from lockstep.workloads.snakes3v3.observations.perspective import Perspective, perspective
from lockstep.workloads.snakes3v3.observations.rich import MOST_BEANS, RICH_SIZE, rich
from lockstep.workloads.snakes3v3.settings import ObservationKind

SIZES: dict[str, int] = {"jidi26": 26, "guide30": 30, "final35": 35, "rich": RICH_SIZE}
"""Length of each kind of vector; entries for absent players or beans are 0."""


def observe(game: SnakesGame, kind: ObservationKind, players: Sequence[int]) -> Tensor:
    """The current observations of these players: (E, A, SIZES[kind]) float32."""
    if kind not in _KINDS:
        near = nearest(kind, list(SIZES))
        raise UserError(f'observation "{kind}": unknown; the nearest is {near or "rich"}; known: {", ".join(SIZES)}')
    return _KINDS[kind](game, perspective(game.rules, tuple(players), game.device))


def _jidi(game: SnakesGame, view: Perspective) -> Tensor:
    """Head, its four neighbours, beans, the other heads; rows and columns are not normalised."""
    return torch.cat((_head(game, view), _beside(game, view), _all_beans(game, view), _heads(game, view.others)), dim=2)


def _guide(game: SnakesGame, view: Perspective) -> Tensor:
    """Head, its four neighbours, two nearest beans, threat of two others, beans, two zeros, heads of those two."""
    first_two = view.others[:, :2]
    distance, length = _distances(game, view, first_two), _lengths(game, first_two)
    # The first two other players, teammates included, and 1e-8 before the + 1: both as in the guide's program.
    threat = length / game.rules.start_length / (distance + 1e-8 + 1)
    near_beans = _near_beans(game, view, absent=2.0 * game.rules.width)
    beans = F.pad(_all_beans(game, view), (0, 2))
    parts = (_head(game, view), _beside(game, view), near_beans, threat, beans, _heads(game, first_two))
    return torch.cat(parts, dim=2)


def _final(game: SnakesGame, view: Perspective) -> Tensor:
    """Head, its four neighbours, beans, two nearest beans, own length, the other heads, threat of two enemies."""
    own = game.lengths[:, view.players].float()[..., None]
    # Clamped, because the length is 0 after a failed respawn.
    threat = _lengths(game, view.rivals) / own.clamp(min=1) / (_distances(game, view, view.rivals) + 1e-8 + 1)
    parts = (_head(game, view), _beside(game, view), _all_beans(game, view), _near_beans(game, view), own / 20)
    return torch.cat((*parts, _heads(game, view.others), threat), dim=2)


def _head(game: SnakesGame, view: Perspective) -> Tensor:
    return game.heads[:, view.players].float()


def _beside(game: SnakesGame, view: Perspective) -> Tensor:
    """(E, A, 4) the codes above, below, to the left and to the right of the head."""
    cells = game.neighbours[game.head_cells[:, view.players]]
    codes = game.codes(cell_contents(game, cells)).long()
    return view.codes.expand(game.count, -1, -1).gather(2, codes)


def _all_beans(game: SnakesGame, view: Perspective) -> Tensor:
    """(E, A, 10) rows and columns of the beans in list order."""
    beans = game.beans.clamp(min=0).float().flatten(1)
    return F.pad(beans, (0, 2 * MOST_BEANS - beans.shape[1]))[:, None].expand(-1, len(view.players), -1)


def _near_beans(game: SnakesGame, view: Perspective, absent: float = 0.0) -> Tensor:
    """(E, A, 6) columns, rows and distance to the two nearest beans; for a missing one zeros and distance `absent`."""
    down, right = offsets(game.rules, game.head_cells[:, view.players], game.bean_cells)
    there = (game.bean_cells < game.rules.cells)[:, None].expand_as(down)
    distance = (down**2 + right**2).sqrt()
    table = torch.stack((right * there, down * there, torch.where(there, distance, absent)), dim=3)
    # A stable sort: of beans at the same distance, the first in the list comes first.
    order = torch.where(there, distance, torch.inf).argsort(dim=2, stable=True)[:, :, :2]
    table = table.gather(2, order[..., None].expand(-1, -1, -1, 3))
    return F.pad(table, (0, 0, 0, 2 - table.shape[2])).flatten(2)


def _heads(game: SnakesGame, players: Tensor) -> Tensor:
    """(E, A, 2N) rows and columns of the heads of players (A, N); zeros for nobody."""
    # Padded by one player, because P stands for nobody.
    return F.pad(game.heads, (0, 0, 0, 1))[:, players].float().flatten(2)


def _lengths(game: SnakesGame, players: Tensor) -> Tensor:
    """(E, A, N) lengths of the players (A, N); 0 for nobody."""
    return F.pad(game.lengths, (0, 1))[:, players].float()


def _distances(game: SnakesGame, view: Perspective, players: Tensor) -> Tensor:
    """(E, A, N) Euclidean distances on the torus from each observer to its players (A, N)."""
    down, right = offsets(game.rules, game.head_cells[:, view.players], F.pad(game.head_cells, (0, 1)))
    return (down**2 + right**2).sqrt().gather(2, players.expand(game.count, -1, -1))


_KINDS: dict[str, Callable[[SnakesGame, Perspective], Tensor]] = {
    "jidi26": _jidi,
    "guide30": _guide,
    "final35": _final,
    "rich": rich,
}
