"""Boards set by hand."""

import pytest
import torch

from lockstep.workloads.snake.env import SnakeEnv


def _set_up(rules, boards, seed=0, **options):
    env = SnakeEnv(rules, torch.arange(len(boards)), seed, torch.device("cpu"), **options)
    state = {name: torch.zeros_like(tensor) for name, tensor in env.state().items()}
    steps_by_delta = {(0, -1): 0, (0, 1): 1, (-1, 0): 2, (1, 0): 3}
    for i, board in enumerate(boards):
        snake = [tuple(cell) for cell in board["snake"]]
        flat = [row * rules.grid_size + column for row, column in snake]
        state["body"][i, flat] = True
        for k in range(len(snake) - 1):
            delta = (snake[k + 1][0] - snake[k][0], snake[k + 1][1] - snake[k][1])
            state["trail"][i, flat[k]] = steps_by_delta[delta]
        state["tail"][i], state["head"][i], state["length"][i] = flat[0], flat[-1], len(flat)
        state["food"][i] = board["food"][0] * rules.grid_size + board["food"][1]
        state["direction"][i], state["steps"][i] = board["direction"], board.get("steps", 0)
    env.load(state)
    return env


@pytest.fixture
def set_up():
    """Set up boards given as dicts of snake (tail to head), direction, food and steps; returns the environment."""
    return _set_up
