"""3v3 Snakes to look at: one game after another, each step as text and as a picture; also from the log of a game."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.reporting.film import Scene
from lockstep.workloads.snakes3v3 import render
from lockstep.workloads.snakes3v3.build import TEAM, rules_of
from lockstep.workloads.snakes3v3.config import SnakesConfig
from lockstep.workloads.snakes3v3.game import SnakesGame
from lockstep.workloads.snakes3v3.gamelog import read_log, record_game, replay, write_log
from lockstep.workloads.snakes3v3.observations import observe
from lockstep.workloads.snakes3v3.opponents import OPPONENTS, Policy

Act = Callable[[Tensor], tuple[Tensor, Any]]
"""Observations (B, A, D) to actions (B, A), and something else."""

_CELL = 28
"""Pixels of a cell."""


def scenes(config: SnakesConfig, act: Act | str, seed: int) -> Iterator[Scene]:
    """Yield what there is to see at every step, for ever: game after game, as an evaluation with this seed plays them.

    `act` is what a network does, or the name of an opponent that plays the team.
    """
    policy = policy_of(config, act)
    for number in count():
        game = SnakesGame(rules_of(config), torch.tensor([number]), seed, torch.device("cpu"))
        yield from _game(game, policy, OPPONENTS[config.eval_opponent], number + 1)


def policy_of(config: SnakesConfig, act: Act | str) -> Policy:
    """Somebody who plays: an opponent by name, or a network that sees what a configuration says."""
    if isinstance(act, str):
        return OPPONENTS[act]

    def policy(game: SnakesGame, players: Any) -> Tensor:
        return act(observe(game, config.observation, tuple(players)))[0].to(game.device)

    return policy


def _game(game: SnakesGame, policy: Policy, rival: Policy, number: int) -> Iterator[Scene]:
    teams = game.rules.teams
    order = torch.tensor([player for team in teams for player in team]).argsort()
    game.reset()
    ended = False
    while not ended:
        yield _scene(game, f"game {number}", ended)
        action = torch.cat([(policy if team == TEAM else rival)(game, teams[team]) for team in range(len(teams))], 1)
        ended = bool(game.step(action.index_select(1, order)).ended)
    yield _scene(game, f"game {number}", ended)


def _scene(game: SnakesGame, title: str, ended: bool) -> Scene:
    scores = [int(game.score[0, list(team)].sum()) for team in game.rules.teams]
    lead = scores[TEAM] - max(score for team, score in enumerate(scores) if team != TEAM)
    words = [title, f"step {int(game.time[0]) - 1}", "score " + " : ".join(map(str, scores))]
    if ended:
        words.append("won" if lead > 0 else "lost" if lead < 0 else "drawn")
    caption = "   ".join(words)
    board = render.text(game, 0, color=True).splitlines()[:-1]
    return Scene("\n".join([*board, "  " + caption]), render.frame(game, 0, _CELL), caption, float(lead), ended)


def write_game(config: SnakesConfig, act: Act | str, seed: int, path: Path) -> None:
    """Play the first game of a seed and write everything about it to a file, in the competition's form."""
    name = act if isinstance(act, str) else "trained"
    rivals = len(rules_of(config).teams) - 1
    policies = [policy_of(config, act), *[OPPONENTS[config.eval_opponent]] * rivals]
    names = [name, *[config.eval_opponent] * rivals]
    write_log(record_game(policies, names, rules_of(config), seed), path)


def logged_scenes(path: Path) -> Iterator[Scene]:
    """Yield what there is to see of a game that was written to a file."""
    log = read_log(path)
    for step, game in enumerate(replay(log)):
        yield _scene(game, path.name, ended=step == len(log["steps"]))
