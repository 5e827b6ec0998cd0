"""Plays the teams that are not trained: scripted players by a schedule, and earlier actors. E: boards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lockstep.compute.lanewise import Lanewise
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.observations.observe import observe
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS, difficulty
from lockstep.workloads.snakes3v3.settings import ObservationKind

LADDER = ("random", "level1", "level2", "level3", "level4")
"""The guide's opponents by difficulty level."""
_LEVELS = {name: level for level, name in enumerate(LADDER)} | {"greedy": 2}
SCHEDULE = "schedule"
"""The value of the setting `opponent` that selects opponents from LADDER as the run progresses."""
_EVASIVE = "evasive"


@dataclass(frozen=True)
class Schedule:
    """Which scripted opponent plays when; episodes are counted over all boards."""

    opponent: str
    strategy: str = "curriculum"
    episode_length: int = 200
    max_episodes: int = 1
    evasion_from: int | None = None
    """Episode from which the evasive opponent replaces all others; None = never."""

    def after(self, steps: int) -> tuple[str, dict[str, float]]:
        """The opponent's name after `steps` steps over all boards, and its metrics."""
        episode = steps // self.episode_length
        evades = self.evasion_from is not None and episode >= self.evasion_from
        name = self.opponent
        if name == SCHEDULE:
            name = LADDER[difficulty(episode, self.max_episodes, self.strategy)]
        # The level is reported even while evasive players replace it; named players without a level report none.
        report = {"difficulty": float(_LEVELS[name])} if name in _LEVELS else {}
        if self.evasion_from is not None:
            report["evasion"] = float(evades)
        return _EVASIVE if evades else name, report


class Opposition:
    """All players of the teams that are not trained."""

    def __init__(
        self,
        schedule: Schedule,
        teams: Sequence[Sequence[int]],
        observation: ObservationKind = "rich",
        past_actors: Sequence[Lanewise] = (),
    ) -> None:
        """`past_actors`: see `past_actor`; boards alternate between the scripted opponent and them."""
        self.players = [player for team in teams for player in team]
        self.teams = teams
        self._schedule = schedule
        self._observation, self._past_actors = observation, past_actors
        # So that the environment can be reset and evaluated before the first `prepare`.
        self._name = schedule.after(0)[0]

    def prepare(self, steps: int, game: SnakesGame) -> dict[str, float]:
        """Choose the scripted opponent for the steps from `steps` on; returns its metrics."""
        self._name, report = self._schedule.after(steps)
        for team in self.teams if self._past_actors else ():
            for actor, seen in zip(self._past_actors, self._seen_by_past(game, team), strict=True):
                actor.begin(seen)
        return report

    def act(self, game: SnakesGame) -> Tensor:
        """(E, n) actions of its players, team by team: all of `players` in their order."""
        return torch.cat([self._team_action(game, team) for team in self.teams], 1)

    def _team_action(self, game: SnakesGame, team: Sequence[int]) -> Tensor:
        action = OPPONENTS[self._name](game, team)
        if not self._past_actors:
            return action
        seen = self._seen_by_past(game, team)
        by_past = [actor(boards)[0] for actor, boards in zip(self._past_actors, seen, strict=True)]
        # Interleaves the actions again: (boards / count, count, ...) flattened is the order of the boards.
        return torch.stack((action[:: len(by_past) + 1], *by_past), 1).flatten(0, 1)

    def _seen_by_past(self, game: SnakesGame, team: Sequence[int]) -> list[Tensor]:
        """What each past actor sees: board i plays opponent i modulo their number, of which 0 is the scripted one."""
        count = len(self._past_actors) + 1
        seen = observe(game, self._observation, team)
        # Contiguous, so that the layout and with it the kernels do not depend on how lanes are computed.
        return [seen[number::count].contiguous() for number in range(1, count)]


def past_actor(network: nn.Module, cohorts: int, device: torch.device) -> Lanewise:
    """A network as a player of boards; cohorts: equal groups of them, in order, each of which it plays as if alone."""
    return Lanewise(partial(_greedy, network), network, cohorts, device)


def _greedy(network: nn.Module, seen: Tensor) -> tuple[Tensor]:
    return (network(seen).argmax(-1),)
