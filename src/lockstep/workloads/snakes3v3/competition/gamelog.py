"""Writes, reads and replays games as JSON in the competition's format."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from lockstep.errors import UserError
from lockstep.untrusted import parse_json, read_regular
from lockstep.workloads.snakes3v3.competition.interface import DIRECTIONS, CompetitionGame, encode
from lockstep.workloads.snakes3v3.competition.position import Position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P, GameRules
from lockstep.workloads.snakes3v3.opponents.scripted import Policy

GameLog = dict[str, Any]

_LARGEST_LOG = 256 << 20
"""Bytes: larger files are refused before they are read into memory."""
_TIME = "%Y-%m-%d %H:%M:%S"
_MOVES = {(-1, 0): 0, (1, 0): 1, (0, -1): 2, (0, 1): 3}


def record_game(
    policies: Sequence[Policy], names: Sequence[str], rules: GameRules = SNAKES_3V3, seed: int = 0, number: int = 0
) -> GameLog:
    """Play one game, with one policy per team, and return its complete log."""
    match = CompetitionGame(rules, seed, number)
    log: GameLog = {
        "game_name": "snakes_3v3" if len(rules.teams) == 2 else f"snakes_{rules.players}p",
        "n_player": rules.players,
        "board_height": rules.height,
        "board_width": rules.width,
        "init_info": match.init_info,
        "start_time": time.strftime(_TIME),
        # Part of the competition's format, without a meaning here.
        "mode": "terminal",
        "seed": seed,
        "map_size": None,
        "steps": [],
    }
    while not match.done:
        now = time.strftime(_TIME)
        actions = _actions(policies, match.game)
        _, reward, _, before, after = match.step(encode(actions))
        log["steps"].append(
            {"time": now, "info_before": before, "joint_action": actions, "reward": reward, "info_after": after}
        )
    ending = {
        "winner": match.check_win(),
        "winner_information": match.game.score[0].tolist(),
        "n_return": match.n_return,
    }
    return {**log, **ending, "names": list(names), "end_time": time.strftime(_TIME)}


def write_log(log: GameLog, path: Path) -> None:
    """Write a game to a file."""
    path.write_text(json.dumps(log))


def read_log(path: Path) -> GameLog:
    """Read a game from a file; UserError if it is not a game log."""
    try:
        log = parse_json(read_regular(path, _LARGEST_LOG, links=True))
        # Only to validate the log: a damaged one fails here, with a one-line error.
        positions(log)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the file that `play --log` wrote") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{path}: not the log of a game, which has init_info and steps ({error!r})") from error
    return log


def positions(log: GameLog) -> list[Position]:
    """Every position of a game, starting with the initial one."""
    states = [log["init_info"], *(step["info_after"] for step in log["steps"])]
    # The log has directions only before each step; after the last step they are inferred from the bodies.
    known = [log["init_info"]["directions"], *(step["info_before"]["directions"] for step in log["steps"][1:])]
    seen = []
    for number, state in enumerate(states):
        snakes = state["snakes_position"]
        if number < len(known):
            directions = [DIRECTIONS.index(name) for name in known[number]]
        else:
            directions = [_direction(snake, log["board_height"], log["board_width"]) for snake in snakes]
        seen.append(Position(snakes, directions, state["beans_position"], time=number + 1))
    return seen


def replay(log: GameLog) -> Iterator[SnakesGame]:
    """Yield a one-board game set to each position in turn, for display."""
    game = SnakesGame(_rules(log), torch.zeros(1, dtype=torch.int64), 0, torch.device("cpu"))
    for seen in positions(log):
        set_up(game, [seen])
        yield game


def _rules(log: GameLog) -> GameRules:
    for rules in (SNAKES_3V3, SNAKES_5P):
        if (rules.players, rules.height, rules.width) == (log["n_player"], log["board_height"], log["board_width"]):
            return rules
    # Unknown rules: teams do not matter for display, so each snake is its own team.
    players = int(log["n_player"])
    return GameRules(log["board_width"], log["board_height"], players, tuple((player,) for player in range(players)))


def _actions(policies: Sequence[Policy], game: SnakesGame) -> list[int]:
    actions = [0] * game.rules.players
    for policy, team in zip(policies, game.rules.teams, strict=True):
        for player, action in zip(team, policy(game, team)[0].tolist(), strict=True):
            actions[player] = action
    return actions


def _direction(snake: list[list[int]], height: int, width: int) -> int:
    """Direction of a snake: away from its second cell; up if it has only one."""
    if len(snake) < 2:
        return 0
    down, right = (snake[0][0] - snake[1][0]) % height, (snake[0][1] - snake[1][1]) % width
    return _MOVES[(down - height if down > 1 else down, right - width if right > 1 else right)]
