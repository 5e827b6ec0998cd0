"""Players that need no learning: the scripted one and the random one."""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.snake.env import DOWN, LEFT, RIGHT, UP, SnakeEnv


def scripted_action(env: SnakeEnv) -> Tensor:
    """Choose a safe move (E,) for every board: sideways to the food, else up or down to it, else the first safe one.

    Safe is what neither turns round nor leaves the board nor meets the body; its last cell counts too. Where nothing
    is safe the move is drawn.
    """
    size = env.rules.grid_size
    ahead = env.neighbours.view(-1, 4).index_select(0, env.head)
    reverse = (env.direction ^ 1)[:, None]
    safe = ~env.body.gather(1, ahead) & (torch.arange(4, device=env.device) != reverse)

    def toward(gap: Tensor, less: int, more: int) -> tuple[Tensor, Tensor]:
        move = torch.where(gap < 0, less, more)
        return move, (gap != 0) & safe.gather(1, move[:, None]).squeeze(1)

    sideways, sideways_serves = toward(env.food % size - env.head % size, LEFT, RIGHT)
    upright, upright_serves = toward(env.food // size - env.head // size, UP, DOWN)
    # argmax returns the first of equals.
    otherwise = torch.where(safe.any(1), safe.to(torch.uint8).argmax(1), _draw(env, "snake-expert"))
    return torch.where(sideways_serves, sideways, torch.where(upright_serves, upright, otherwise))


def random_action(env: SnakeEnv) -> Tensor:
    """Draw a move (E,) for every board, each of the four as likely."""
    return _draw(env, "snake-random")


def _draw(env: SnakeEnv, purpose: str) -> Tensor:
    # The draw is a tensor because a number would be copied to the device, which a captured graph may not do.
    word = random.words(env.seed, purpose, env.index, env.clock, torch.zeros_like(env.clock))[0]
    return word >> 30
