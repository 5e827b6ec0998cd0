"""One innings of many games at once, seen before the next ball: a scoreboard for the same features as in training.

All games are at the same delivery, so a column of the history is an array (B, t), and what `Groups` sums over earlier
rows of a table is summed here over the second axis. B: games, t: deliveries so far.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from lockstep.workloads.cricket.features.batting_pair import BattingPair
from lockstep.workloads.cricket.features.running_sums import Groups
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.matches.match import Match


class Earlier(Groups):
    """The earlier deliveries that belong together, for the ball to come of every game."""

    def __init__(self, member: np.ndarray) -> None:
        """`member`: (B, t) bool."""
        self._member = member

    @cached_property
    def _age(self) -> np.ndarray:
        """(B, t): how many of them ago each was, 1 for the last one."""
        return np.flip(np.flip(self._member, 1).cumsum(1), 1)

    def before(self, values: np.ndarray) -> np.ndarray:
        """(B,): the sum of the values (B, t)."""
        return np.where(self._member, values, 0).sum(1)

    def recent(self, values: np.ndarray, rows: int) -> np.ndarray:
        """(B,): the sum over the last `rows` of them."""
        return np.where(self._member & (self._age <= rows), values, 0).sum(1)

    def since(self, events: np.ndarray) -> np.ndarray:
        """(B,): how many of them ago the last event was; 0 if there was none."""
        never = self._member.shape[1] + 1
        ago = np.where(self._member & (events != 0), self._age, never).min(1, initial=never)
        return np.where(ago == never, 0, ago)

    def lagged(self, values: np.ndarray, lag: int) -> np.ndarray:
        """(B,): the value `lag` deliveries ago, 0 if there was none; of all deliveries, whoever is a member."""
        return values[:, -lag] if values.shape[1] >= lag else np.zeros(len(values), like=values)


class _Pair(BattingPair):
    """The two batters of every game; results (2B,) are the striker's and the non-striker's in turn."""

    def __init__(self, board: "LiveScoreboard", position: np.ndarray) -> None:
        """`position`: (B, players)."""
        batter, nonstriker = board.book["batter"], board.book["nonstriker"]
        self._players = [board.current(end)[:, None] for end in ("batter", "nonstriker")]
        self._faced = [batter == player for player in self._players]
        self._with = [Earlier((batter == player) | (nonstriker == player)) for player in self._players]
        self._position = position

    def sum(self, events: np.ndarray) -> np.ndarray:
        """The sum of events (B, t) that each of the two faced."""
        return _in_turn([Earlier(faced).before(events) for faced in self._faced])

    def since(self, events: np.ndarray) -> np.ndarray:
        """How many deliveries of the player ago he last faced one of the events."""
        return _in_turn([own.since(events * faced) for own, faced in zip(self._with, self._faced, strict=True)])

    def recent(self, events: np.ndarray, rows: int) -> np.ndarray:
        """Like `sum`, over the last `rows` deliveries at which the player was at either end."""
        return _in_turn([own.recent(events * faced, rows) for own, faced in zip(self._with, self._faced, strict=True)])

    @cached_property
    def position(self) -> np.ndarray:
        """Each one's place in the batting order, from 0."""
        return self.of_each(self._position)

    def of_each(self, table: np.ndarray) -> np.ndarray:
        """A value of every player (B, players), for the two who bat."""
        return _in_turn([np.take_along_axis(table, player, 1)[:, 0] for player in self._players])


class _Columns:
    """The history's columns by name, as a scorebook gives them."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns, self._wide = columns, dict[str, np.ndarray]()

    def __getitem__(self, name: str) -> np.ndarray:
        # Stored narrow, and widened once for all features.
        if name not in self._wide:
            self._wide[name] = self._columns[name].astype(np.int64)
        return self._wide[name]


class LiveScoreboard(Scoreboard):
    """The scoreboard before the next ball of every game."""

    def __init__(
        self,
        match: Match,
        columns: Mapping[str, np.ndarray],
        coming: Mapping[str, np.ndarray],
        positions: np.ndarray,
        entries: np.ndarray,
        answered: "tuple[LiveScoreboard, np.ndarray] | None" = None,
    ) -> None:
        """`columns`: by field of Row, (B, t); `coming`: what is known of the ball to come, (B,).

        Besides fields of Row, `coming` has target, allotted and free_hit. `positions`, `entries`: (B, players), place
        in the batting order and legal balls when each came in. `answered`: in a chase, the other innings, of more
        games, and which of those (B,) these are.
        """
        self._match, self._coming, self._answered = match, coming, answered
        self._positions, self._entries = positions, entries
        self.book: Any = _Columns(columns)
        everything = np.ones(columns["over"].shape, bool, like=positions)
        self.in_innings = Earlier(everything)
        self.in_over = Earlier(columns["over"] == coming["over"][:, None])

    def current(self, column: str) -> np.ndarray:
        """(B,): what can be seen of the ball to come."""
        return self._coming[column]

    def of_match(self, read: Callable[[Match], Any], kind: type) -> np.ndarray:
        """(B,): a fact of the match."""
        return self._every(read(self._match), kind)

    def of_other_side(self, events: Callable[[Scoreboard], np.ndarray]) -> np.ndarray:
        """(B,): the sum of some events over the innings that this one answers."""
        if self._answered is None:
            return self._every(0.0, float)
        other, games = self._answered
        return events(other).sum(1)[games]

    @cached_property
    def in_partnership(self) -> Groups:
        """The last deliveries in a row with the same two batters."""
        batter, nonstriker = self.book["batter"], self.book["nonstriker"]
        one, other = (self.current(end)[:, None] for end in ("batter", "nonstriker"))
        same = ((batter == one) & (nonstriker == other)) | ((batter == other) & (nonstriker == one))
        return Earlier(np.flip(np.logical_and.accumulate(np.flip(same, 1), 1), 1))

    @cached_property
    def deliveries(self) -> np.ndarray:
        """(B,): deliveries so far."""
        return self._every(self.book["over"].shape[1], np.int64)

    @cached_property
    def super_over(self) -> np.ndarray:
        """(B,): never; super overs are not played out."""
        return self._every(False, bool)

    @cached_property
    def target(self) -> np.ndarray:
        """(B,): runs that win; 0 in the first innings."""
        return self._coming["target"]

    @cached_property
    def allotted_balls(self) -> np.ndarray:
        """(B,): legal balls of the innings."""
        return self._coming["allotted"]

    @cached_property
    def free_hit(self) -> np.ndarray:
        """(B,): whether the ball to come is a free hit."""
        return self._coming["free_hit"]

    @cached_property
    def batters(self) -> _Pair:
        """The two batters of every game."""
        return _Pair(self, self._positions)

    @property
    def batting_entries(self) -> np.ndarray:
        """(2B,): legal balls when each of the two batters came in."""
        return self.batters.of_each(self._entries)

    def by_player(self, *columns: str) -> Groups:
        """Earlier deliveries of the players in these columns."""
        member = np.ones(self.book["over"].shape, bool, like=self._positions)
        for column in columns:
            member &= self.book[column] == self.current(column)[:, None]
        return Earlier(member)

    def _every(self, value: Any, kind: type) -> np.ndarray:
        return np.full(len(self._positions), value, kind, like=self._positions)


def _in_turn(ends: list[np.ndarray]) -> np.ndarray:
    return np.stack(ends, 1).reshape(-1)
