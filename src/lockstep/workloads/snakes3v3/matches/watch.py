"""Plays 3v3 Snakes for `lockstep play`, each step as text and as a frame; also replays game logs."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import torch

from lockstep.config.values import shown
from lockstep.reporting.film import Scene
from lockstep.workloads.snakes3v3.competition.gamelog import GameLog, read_log, record_game, replay, write_log
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.matches import render
from lockstep.workloads.snakes3v3.matches.players import Act, policy_of
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS, Policy
from lockstep.workloads.snakes3v3.settings import TEAM, SnakesSettings

_CELL = 28
"""Pixels of a cell."""
_TRAINED = "trained"
"""What a network is called in legends and logs."""


def scenes(settings: SnakesSettings, act: Act | str, seed: int) -> Iterator[Scene]:
    """Yield a scene per step, endlessly: the same games as an evaluation with this seed.

    `act` is a network's policy, or the name of a scripted player for the team.
    """
    policy = policy_of(act, settings.observation)
    names = _names(settings, act)
    # Board `number` of the seed is episode `number` of an evaluation, so both play the same games.
    for number in count():
        game = SnakesGame(settings.rules, torch.tensor([number]), seed, torch.device("cpu"))
        yield from _game(game, policy, OPPONENTS[settings.eval_opponent], f"game {number + 1}", names)


def _names(settings: SnakesSettings, act: Act | str) -> list[str]:
    """Who plays each team: the policy that is shown, and its opponent in evaluations."""
    rivals = len(settings.rules.teams) - 1
    return [act if isinstance(act, str) else _TRAINED, *[settings.eval_opponent] * rivals]


def _game(game: SnakesGame, policy: Policy, rival: Policy, title: str, names: Sequence[str]) -> Iterator[Scene]:
    teams = game.rules.teams
    # Actions are computed team by team; this permutation restores the order of the players.
    order = torch.tensor([player for team in teams for player in team]).argsort()
    game.reset()
    ended = False
    while not ended:
        yield _scene(game, title, names, ended)
        action = torch.cat([(policy if team == TEAM else rival)(game, teams[team]) for team in range(len(teams))], 1)
        ended = bool(game.step(action.index_select(1, order)).ended)
    yield _scene(game, title, names, ended)


def _scene(game: SnakesGame, title: str, names: Sequence[str], ended: bool) -> Scene:
    scores = [int(game.score[0, list(team)].sum()) for team in game.rules.teams]
    lead = scores[TEAM] - max(score for team, score in enumerate(scores) if team != TEAM)
    parts = [title, f"step {int(game.time[0]) - 1}", "score " + " : ".join(map(str, scores))]
    if ended:
        parts.append(f"{names[TEAM]} {'won' if lead > 0 else 'lost'}" if lead else "drawn")
    caption = "   ".join(parts)
    # The last line of the text is its own caption.
    board = render.text(game, 0, color=True).splitlines()[:-1]
    text = "\n".join([*board, "  " + render.legend(game, names, color=True), "  " + caption])
    return Scene(text, render.drawing(game, 0, names, _CELL), caption, float(lead), ended)


def write_game(settings: SnakesSettings, act: Act | str, seed: int, path: Path) -> None:
    """Play the first game of a seed and write its log to a file, in the competition's format."""
    rules = settings.rules
    rivals = [OPPONENTS[settings.eval_opponent]] * (len(rules.teams) - 1)
    policies = [policy_of(act, settings.observation), *rivals]
    write_log(record_game(policies, _names(settings, act), rules, seed), path)


def logged_scenes(path: Path) -> Iterator[Scene]:
    """Yield the scenes of a logged game."""
    log = read_log(path)
    for step, game in enumerate(replay(log)):
        yield _scene(game, path.name, _logged_names(log, len(game.rules.teams)), ended=step == len(log["steps"]))


def _logged_names(log: GameLog, teams: int) -> list[str]:
    """Who played each team, escaped: the file may come from anybody; numbers where it does not say."""
    found = log.get("names")
    if isinstance(found, list) and len(found) == teams:
        return [shown(name) for name in found]
    return [f"team {number + 1}" for number in range(teams)]
