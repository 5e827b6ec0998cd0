"""Shows Snake: one game after another, each step as text and as an image."""

from collections.abc import Callable, Iterator
from itertools import count

import torch
from torch import Tensor

from lockstep.reporting.drawing.board import Board, Snake
from lockstep.reporting.film import Scene
from lockstep.workloads.snake import render
from lockstep.workloads.snake.env import ACTIONS, SnakeEnv
from lockstep.workloads.snake.problem import BASELINES
from lockstep.workloads.snake.rules import SnakeRules

Act = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""Maps observations (B, ...) to actions (B,) and, if there are any, the probabilities (B, 4) they were chosen by."""

_PICTURE_SIZE = 360
"""Pixels of the board's side, about: cells are whole pixels."""
_MARGIN = 8
_SNAKE, _HEAD, _DEAD, _FOOD = (
    (52, 168, 83),
    (190, 242, 100),
    (214, 218, 224),
    (239, 68, 68),
)
_BAR = 12
"""Characters of a bar for probability 1."""


def scenes(rules: SnakeRules, act: Act | str, seed: int) -> Iterator[Scene]:
    """Yield a scene for every step, game after game, endlessly: the games of an evaluation with this seed.

    `act`: a network's policy, or the name of one of BASELINES.
    """
    for game in count():
        env = SnakeEnv(rules, torch.tensor([game]), seed, torch.device("cpu"))
        yield from _game(env, _baseline(act, env) if isinstance(act, str) else act, game + 1)


def _baseline(name: str, env: SnakeEnv) -> Act:
    return lambda _: (BASELINES[name](env), None)


def _game(env: SnakeEnv, act: Act, number: int) -> Iterator[Scene]:
    observation, score, ending = env.reset(), 0.0, ""
    while not ending:
        action, probabilities = act(observation)
        yield _scene(env, number, score, None if probabilities is None else probabilities[0].tolist(), ending)
        done = env.advance(action)
        observation, score = done.observation, score + float(done.reward)
        if bool(done.terminated | done.truncated):
            late = int(env.steps[0]) >= env.rules.step_limit
            ending = "won" if bool(done.info["won"]) else "out of time" if late else "died"
    yield _scene(env, number, score, None, ending)


def _scene(env: SnakeEnv, number: int, score: float, probabilities: list[float] | None, ending: str) -> Scene:
    facts = (f"step {int(env.steps[0])}", f"length {int(env.length[0])}", f"score {score:.2f}", ending)
    return Scene(
        text=_beside(render.text(env, 0, color=True), _panel(number, score, probabilities, ending)),
        image=_board(env, died=ending == "died"),
        caption="   ".join(filter(None, facts)),
        score=score,
        ended=bool(ending),
    )


def _panel(number: int, score: float, probabilities: list[float] | None, ending: str) -> list[str]:
    lines = [f"game   {number}", f"score  {score:.2f}", ending, ""]
    for move, probability in zip(ACTIONS, probabilities or (), strict=False):
        lines.append(f"{move:6} {'█' * round(probability * _BAR):{_BAR}} {probability:4.0%}")
    return lines


def _beside(board: str, panel: list[str]) -> str:
    """The panel to the right of the board, from its second line on."""
    lines = board.splitlines()
    notes = ["", *panel, *[""] * len(lines)]
    return "\n".join(f"{line}   {note}".rstrip() for line, note in zip(lines, notes, strict=False))


def _board(env: SnakeEnv, died: bool) -> Board:
    size, food = env.rules.grid_size, int(env.food[0])
    # From the head on; the environment lists a snake from its tail.
    cells = env.cells(0)[::-1]
    # A full board has no food: its cell is the snake's.
    return Board(
        width=size,
        height=size,
        snakes=[Snake(cells, _DEAD if died else _HEAD, _SNAKE)],
        food=[] if food in cells else [food],
        food_colour=_FOOD,
        scale=max(_PICTURE_SIZE // size, 4),
        margin=_MARGIN,
    )
