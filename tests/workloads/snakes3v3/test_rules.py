import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition.position import Position, position, set_up
from lockstep.workloads.snakes3v3.engine import torus
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P, GameRules

CPU = torch.device("cpu")


def test_the_two_games_of_the_competition():
    assert (SNAKES_3V3.width, SNAKES_3V3.height, SNAKES_3V3.players, SNAKES_3V3.beans) == (20, 10, 6, 5)
    assert SNAKES_3V3.teams == ((0, 1, 2), (3, 4, 5)) and SNAKES_3V3.team_of(4) == 1
    assert SNAKES_5P.teams == ((0,), (1,), (2,), (3,), (4,)) and SNAKES_5P.start_length == 3
    assert SNAKES_3V3.max_steps == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 3}, "width is 3; allowed: 4 or more"),
        ({"beans": 6}, "beans is 6; allowed: 1 to 5"),
        ({"players": 7, "teams": ((0, 1, 2, 3, 4, 5, 6),)}, "players is 7; allowed: 1 to 6"),
        ({"width": 6, "height": 6}, r"width \* height is 36; allowed: 47"),
        ({"width": 20, "height": 20}, r"width \* height is 400; allowed: 47 \(for the players and beans\) to 240"),
        ({"max_steps": 0}, "max_steps is 0; allowed: 1 or more"),
        ({"teams": ((0, 1, 2), (3, 4))}, "each of the players 0 to 5 in one team"),
    ],
)
def test_impossible_rules_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        GameRules(**options)


def test_neighbours_wrap_around_the_board():
    beside = torus.neighbours(SNAKES_3V3, CPU)
    assert beside[0].tolist() == [180, 20, 19, 1]
    assert beside[199].tolist() == [179, 19, 198, 180]


def test_respawn_bodies_worked_out_by_hand():
    shapes = torus.shapes(CPU)
    bodies = torus.respawn_bodies(SNAKES_3V3, CPU).view(201, 19, 4)
    right_and_down, only_left_and_on = 0b0011, 0b1000 | 1 << 4 + 9 + 2
    assert bodies[0, shapes[right_and_down]].tolist() == [1, 0, 20, 3], "the corner of an L is not the head"
    assert bodies[0, shapes[only_left_and_on]].tolist() == [0, 19, 18, 2], "faces left, towards its own second cell"
    assert bodies[45, shapes[0b1001]].tolist() == [45, 46, 44, 2], "a straight line keeps its middle as the head"
    assert shapes[0] == shapes[0b0100] == torus.NO_ROOM


def test_there_are_four_straight_snakes_for_each_cell():
    straights = torus.straights(SNAKES_3V3, CPU)
    assert len({tuple(row) for row in straights.tolist()}) == 800
    assert straights[0].tolist() == [2, 1, 0, 3] and straights[1].tolist() == [0, 1, 2, 2]


def test_a_position_is_read_back_as_it_was_set():
    game = SnakesGame(SNAKES_3V3, torch.arange(1), 0, CPU)
    snakes = [[[row, 5], [row, 6], [row, 7], [row, 8]] for row in range(6)]
    seen = Position(snakes, [2, 0, 1, 3, 2, 0], [[9, 9], [8, 8]], time=50)
    set_up(game, [seen])
    assert position(game, 0) == seen
    assert game.beans[0].tolist() == [[9, 9], [8, 8], [-1, -1], [-1, -1], [-1, -1]]
    assert game.bean_count.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beans": [[10, 0]]}, r"cell \[10, 0\] is not on the board of 10 x 20"),
        ({"beans": [[0, 6]]}, "a cell is used twice"),
        ({"directions": [0]}, "6 snakes, 1 directions and 0 beans; these rules have 6 players"),
    ],
)
def test_impossible_positions_are_refused(change, message):
    snakes = [[[row, 5], [row, 6], [row, 7]] for row in range(6)]
    game = SnakesGame(SNAKES_3V3, torch.arange(1), 0, CPU)
    with pytest.raises(UserError, match=message):
        set_up(game, [Position(**{"snakes": snakes, "directions": [2] * 6, "beans": []} | change)])
