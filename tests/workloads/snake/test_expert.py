import pytest
import torch

from lockstep.workloads.snake.env import DOWN, LEFT, RIGHT, UP, SnakeEnv
from lockstep.workloads.snake.expert import random_action, scripted_action
from lockstep.workloads.snake.rules import SnakeRules

COIL = [(1, 0), (0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (2, 2), (2, 1), (1, 1), (1, 2)]
"""The head (1, 2) is blocked on all four sides."""


@pytest.mark.parametrize(
    ("snake", "direction", "food", "move"),
    [
        ([(2, 1), (2, 2), (2, 3)], RIGHT, (0, 5), RIGHT),
        ([(2, 1), (2, 2), (2, 3)], RIGHT, (0, 3), UP),
        ([(2, 1), (2, 2), (2, 3)], RIGHT, (5, 3), DOWN),
        ([(2, 1), (2, 2), (2, 3)], RIGHT, (5, 0), DOWN),
        ([(2, 1), (2, 2), (2, 3)], RIGHT, (2, 0), RIGHT),
        ([(4, 3), (3, 3), (2, 3)], UP, (5, 3), LEFT),
        ([(1, 1), (1, 2), (2, 2), (2, 1)], LEFT, (0, 1), LEFT),
    ],
    ids=[
        "sideways to the food before upright",
        "up where the column is right",
        "down where the column is right",
        "down where sideways would turn round",
        "the first safe move where the only way turns round",
        "left is the first of the safe moves",
        "the tail cell is not safe",
    ],
)
def test_the_scripted_player_takes_the_move_worked_out_by_hand(set_up, snake, direction, food, move):
    env = set_up(SnakeRules(grid_size=6), [{"snake": snake, "direction": direction, "food": food}])
    assert scripted_action(env).tolist() == [move]


def test_the_scripted_player_turns_at_a_wall(set_up):
    board = {"snake": [(2, 3), (2, 4), (2, 5)], "direction": RIGHT, "food": (2, 0)}
    assert scripted_action(set_up(SnakeRules(grid_size=6), [board])).tolist() == [UP]


def test_without_a_safe_move_the_move_is_uniform_and_reproducible(set_up):
    board = {"snake": COIL, "direction": RIGHT, "food": (3, 3)}
    env = set_up(SnakeRules(grid_size=4), [board] * 4000)
    moves = scripted_action(env)
    assert all(900 < count < 1100 for count in torch.bincount(moves, minlength=4).tolist())
    assert torch.equal(moves, scripted_action(env))


def test_random_moves_are_uniform_and_depend_on_board_and_clock():
    whole, part = (
        SnakeEnv(SnakeRules(), index, 5, torch.device("cpu")) for index in (torch.arange(4000), torch.arange(100, 200))
    )
    whole.reset(), part.reset()
    first = random_action(whole)
    assert all(900 < count < 1100 for count in torch.bincount(first, minlength=4).tolist())
    assert torch.equal(first[100:200], random_action(part))
    whole.step(first)
    assert not torch.equal(first, random_action(whole))


def test_the_scripted_player_reaches_its_known_score():
    env = SnakeEnv(SnakeRules(grid_size=8), torch.arange(300), 7, torch.device("cpu"))
    env.reset()
    first_return, playing = torch.zeros(300), torch.ones(300, dtype=torch.bool)
    while playing.any():
        done = env.step(scripted_action(env))
        first_return += done.reward * playing
        playing &= ~done.terminated
    assert 12.3 < float(first_return.mean()) < 14.3, "13.3 with a deviation of 5.5, known from 300 episodes"
