"""Games set up by hand."""

import pytest
import torch

from lockstep.workloads.snakes3v3.competition.position import Position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3

CPU = torch.device("cpu")
APART = [[[row, 12], [row, 13], [row, 14]] for row in (0, 2, 4, 6, 8, 9)]
"""Six snakes that do not touch, all facing left."""


@pytest.fixture(params=[True, False], ids=["sparse", "dense"])
def make_game(request):
    """A game on boards 0, 1, ... with the sparse or the dense step; both give the same results."""

    def make(rules=SNAKES_3V3, boards=1, seed=0, first=0):
        game = SnakesGame(rules, torch.arange(first, first + boards), seed, CPU, sparse=request.param)
        game.reset()
        return game

    return make


@pytest.fixture
def game_at(make_game):
    """A game on one board with the given snakes and beans, and the other snakes out of the way."""

    def at(snakes, directions, beans, time=1, rules=SNAKES_3V3):
        taken = {tuple(cell) for body in snakes.values() for cell in body}
        bodies = [snakes.get(player, APART[player]) for player in range(rules.players)]
        assert not any(taken & set(map(tuple, body)) for player, body in enumerate(bodies) if player not in snakes)
        looking = [directions.get(player, 2) for player in range(rules.players)]
        game = make_game(rules)
        set_up(game, [Position(bodies, looking, beans, time)])
        return game

    return at
