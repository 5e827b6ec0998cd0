"""Ids of the venues, teams and players of the training matches; 0 is unknown."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.workloads.cricket.features.venues import Venues
from lockstep.workloads.cricket.matches.scorebook import Scorebook


@dataclass(frozen=True)
class EntityIndex:
    """The entities of the training matches; ids start at 1."""

    venues: Venues
    teams: tuple[str, ...]
    players: tuple[tuple[str, str], ...]
    """Key and name of each player, id 1 first."""

    @staticmethod
    def of(book: Scorebook) -> "EntityIndex":
        """The entities of a scorebook: venues and teams of its matches, and whoever batted or bowled."""
        seen = np.unique(np.concatenate([book[column] for column in ("batter", "bowler", "nonstriker")]))
        return EntityIndex(
            Venues.of(book.matches),
            tuple(sorted({team for match in book.matches for team in match.teams})),
            tuple(sorted((book.keys[person], book.names[person]) for person in seen)),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of ids of each kind, including the unknown one."""
        return {"venue": len(self.venues.names) + 1, "team": len(self.teams) + 1, "player": len(self.players) + 1}

    def team(self, name: str) -> int:
        """The id of a team."""
        return self.teams.index(name) + 1 if name in self.teams else 0

    def people(self, book: Scorebook) -> np.ndarray:
        """The id of each of the book's people, plus a last entry, which maps nobody (-1) to unknown."""
        number = {key: place + 1 for place, (key, _) in enumerate(self.players)}
        return np.array([*(number.get(key, 0) for key in book.keys), 0], np.int64)

    def ids(self, book: Scorebook) -> np.ndarray:
        """(N, 6) int64: the ids of ENTITIES at each delivery."""
        # Places count from 0, ids from 1.
        number = {team: place + 1 for place, team in enumerate(self.teams)}
        venue = np.array([self.venues.number(match) + 1 for match in book.matches], np.int64)
        sides = np.zeros((len(book.innings), 2), np.int64)
        for place, (innings, match) in enumerate(zip(book.innings, book.innings_match, strict=True)):
            one, other = book.matches[match].teams
            sides[place] = number.get(innings.team, 0), number.get(other if innings.team == one else one, 0)
        people = self.people(book)
        batting, bowling = sides[book.innings_of].T
        columns = (venue[book.match], batting, bowling, *(people[book[role]] for role in _PEOPLE))
        return np.stack(columns, 1)

    def as_json(self) -> dict[str, Any]:
        """The index as JSON values."""
        return {"venues": self.venues.as_json(), "teams": self.teams, "players": self.players}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "EntityIndex":
        """Inverse of `as_json`."""
        players = tuple((key, name) for key, name in value["players"])
        return EntityIndex(Venues.from_json(value["venues"]), tuple(value["teams"]), players)


_PEOPLE = ("batter", "nonstriker", "bowler")
