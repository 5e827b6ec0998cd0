"""The competition's interface: dict observations and one-hot actions."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition.position import position
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import FIRST_SNAKE, SNAKES_3V3, GameRules

DIRECTIONS = ("up", "down", "left", "right")
"""The names of the actions."""

OneHot = list[list[int]]
"""An action as the platform writes it: [[0, 0, 0, 1]]."""


def encode(actions: Iterable[int]) -> list[OneHot]:
    """Actions as the platform writes them, one for each player."""
    return [[[int(way == action) for way in range(4)]] for action in actions]


def decode(joint_action: Sequence[OneHot]) -> list[int]:
    """The actions (0 to 3) in the platform's one-hot lists; UserError for anything else."""
    for player, action in enumerate(joint_action):
        if len(action) != 1 or len(action[0]) != 4 or sorted(action[0]) != [0, 0, 0, 1]:
            raise UserError(
                f"action of player {player} is {action}; allowed: [[a, b, c, d]], one of the four 1, the others 0"
            )
    return [list(action[0]).index(1) for action in joint_action]


class CompetitionGame:
    """One game with the interface of the competition's own program: dict observations, one-hot actions."""

    def __init__(self, rules: GameRules = SNAKES_3V3, seed: int = 0, number: int = 0) -> None:
        """`number`: which of the games of this seed."""
        self.game = SnakesGame(rules, torch.tensor([number]), seed, torch.device("cpu"))
        self.reset()

    def reset(self) -> list[dict[Any, Any]]:
        """Start a game; returns the observation of each player."""
        self.game.reset()
        self.done = False
        self.n_return = [0.0] * self.game.rules.players
        """Sum of each player's rewards."""
        # None until the first step, by which submissions recognise a new game.
        self._last_direction: list[str] | None = None
        self.init_info = {**self._positions(), "directions": self._directions()}
        return self.all_observes

    @property
    def all_observes(self) -> list[dict[Any, Any]]:
        """The observation of each player; they differ in the last key only."""
        now = self._positions()
        seen: dict[Any, Any] = {1: now["beans_position"]}
        seen |= {FIRST_SNAKE + player: snake for player, snake in enumerate(now["snakes_position"])}
        seen |= {"board_width": self.game.rules.width, "board_height": self.game.rules.height}
        seen["last_direction"] = self._last_direction
        return [{**seen, "controlled_snake_index": FIRST_SNAKE + player} for player in range(self.game.rules.players)]

    def step(
        self, joint_action: Sequence[OneHot]
    ) -> tuple[list[dict[Any, Any]], list[float], bool, dict[str, Any], dict[str, Any]]:
        """Move all snakes; returns observations, rewards, whether the game is over, and infos before and after."""
        if self.done:
            raise UserError("the game is over; call reset before the next step")
        actions = decode(joint_action)
        if len(actions) != self.game.rules.players:
            raise UserError(f"{len(actions)} actions; this game has {self.game.rules.players} players")
        # The directions before the move, which is what the platform reports.
        self._last_direction = self._directions()
        done = self.game.step(torch.tensor([actions]))
        reward, self.done = done.reward[0].tolist(), bool(done.ended)
        self.n_return = [total + gain for total, gain in zip(self.n_return, reward, strict=True)]
        after = {**self._positions(), "hit": done.dead[0].int().tolist(), "score": self.game.score[0].tolist()}
        return self.all_observes, reward, self.done, {"directions": self._last_direction}, after

    def check_win(self) -> int:
        """Code of the best snake, the first in a tie. The winning team is the one with the higher sum of scores."""
        score = self.game.score[0].tolist()
        return score.index(max(score)) + FIRST_SNAKE

    def _positions(self) -> dict[str, Any]:
        now = position(self.game, 0)
        return {"snakes_position": now.snakes, "beans_position": now.beans}

    def _directions(self) -> list[str]:
        return [DIRECTIONS[direction] for direction in self.game.directions[0].tolist()]
