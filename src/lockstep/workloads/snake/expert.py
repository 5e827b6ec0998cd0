"""Baseline policies without a network: scripted and random."""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.snake.env import DOWN, LEFT, RIGHT, UP, SnakeEnv


def scripted_action(env: SnakeEnv) -> Tensor:
    """A safe move (E,) for every board: left or right towards the food, else up or down towards it, else any safe one.

    A move is safe if it does not reverse, leave the board or hit the body, including the tail. If no move is safe, a
    random one is taken.
    """
    size = env.rules.grid_size
    ahead = env.neighbours.view(-1, 4).index_select(0, env.head)
    reverse = (env.direction ^ 1)[:, None]
    safe = ~env.body.gather(1, ahead) & (torch.arange(4, device=env.device) != reverse)

    def toward(gap: Tensor, less: int, more: int) -> tuple[Tensor, Tensor]:
        move = torch.where(gap < 0, less, more)
        return move, (gap != 0) & safe.gather(1, move[:, None]).squeeze(1)

    sideways, sideways_helps = toward(env.food % size - env.head % size, LEFT, RIGHT)
    vertical, vertical_helps = toward(env.food // size - env.head // size, UP, DOWN)
    # The first safe one: argmax returns the first of equals.
    otherwise = torch.where(safe.any(1), safe.to(torch.uint8).argmax(1), _draw(env, "snake-expert"))
    return torch.where(sideways_helps, sideways, torch.where(vertical_helps, vertical, otherwise))


def random_action(env: SnakeEnv) -> Tensor:
    """A uniformly random move (E,) for every board."""
    return _draw(env, "snake-random")


def _draw(env: SnakeEnv, purpose: str) -> Tensor:
    # zeros_like, not 0: a Python number would be copied to the device, which CUDA graph capture does not allow.
    word = random.random_words(env.seed, purpose, env.index, env.clock, torch.zeros_like(env.clock))[0]
    return word >> 30  # the top two of 32 bits: 0 to 3
