"""How each delivery counts (outcome, legal, boundary, ...), and the scoreboard before it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from lockstep.compute.device_array import look_up
from lockstep.workloads.cricket.features.batting_pair import BattingPair
from lockstep.workloads.cricket.features.running_sums import Groups
from lockstep.workloads.cricket.matches.match import KINDS, OVERS, Match
from lockstep.workloads.cricket.matches.scorebook import Scorebook

WICKET_LABEL = 6
_LABEL_OF_RUNS = np.array([0, 1, 2, 3, 4, 0, 5])
"""Label by the batter's runs, 0 to 6; five are too rare for a class and count as a dot, as in the original task."""
_NOT_THE_BOWLERS = [KINDS.index(kind) for kind in ("none", "run out", "retired")]
_PLAYERS = 1 << 20
"""More than there are players, to combine an innings and up to two players to one int64 key."""


class Scoreboard:
    """(N,) arrays about the deliveries of a scorebook. Counts leave out the delivery itself, so that nothing leaks.

    Features are made of four things: `current`, what a delivery shows before it is bowled; columns of `book` and what
    is derived from them, which are events; sums of events over earlier deliveries by groups; and facts of the match.
    A match that is played out (live/innings.py) gives the same four, so that features are written once.
    """

    def __init__(self, book: Scorebook) -> None:
        self.book = book
        self.in_innings = Groups(book.innings_of)
        # 64 is more than an innings has overs.
        self.in_over = Groups(book.innings_of * 64 + book["over"])

    def current(self, column: str) -> np.ndarray:
        """What can be seen of each delivery before it is bowled: innings, over, powerplay and the three players."""
        return self.book[column]

    def of_match(self, read: Callable[[Match], Any], kind: type) -> np.ndarray:
        """A fact of the match, for each delivery."""
        return np.array([read(match) for match in self.book.matches], kind)[self.book.match]

    def of_other_side(self, events: "Callable[[Scoreboard], np.ndarray]") -> np.ndarray:
        """The sum of some events over the innings that a chase answers; 0 for innings that chase nothing."""
        innings = self.book.innings_of
        totals = np.bincount(innings, events(self), len(self.book.innings))
        return np.where(self.chasing, totals[np.maximum(innings - 1, 0)], 0)

    @cached_property
    def in_partnership(self) -> Groups:
        """Deliveries of the same two batters; those who bat together again (one was hurt) start a new partnership."""
        book = self.book
        # The same pair whoever is on strike.
        one, other = np.minimum(book["batter"], book["nonstriker"]), np.maximum(book["batter"], book["nonstriker"])
        pair = one * (1 << 20) + other
        changed = (np.diff(pair, prepend=-1) != 0) | (np.diff(book.innings_of, prepend=-1) != 0)
        return Groups(np.cumsum(changed))

    @cached_property
    def label(self) -> np.ndarray:
        """The outcome: a wicket if anybody was out or retired, otherwise by the batter's runs."""
        by_runs = look_up(_LABEL_OF_RUNS, np.minimum(self.book["batter_runs"], 6))
        return np.where(self.book["kind"] > 0, WICKET_LABEL, by_runs)

    @cached_property
    def legal(self) -> np.ndarray:
        """Whether the delivery counts towards the over."""
        return ((self.book["wides"] == 0) & (self.book["noballs"] == 0)).astype(np.int64)

    @cached_property
    def faced(self) -> np.ndarray:
        """Whether the delivery counts as a ball faced by the batter."""
        return (self.book["wides"] == 0).astype(np.int64)

    @cached_property
    def dot(self) -> np.ndarray:
        """Whether nothing was scored."""
        return (self.book["total_runs"] == 0).astype(np.int64)

    @cached_property
    def boundary(self) -> np.ndarray:
        """Whether the batter hit a four or a six."""
        return ((self.book["batter_runs"] >= 4) & (self.book["ran_all"] == 0)).astype(np.int64)

    @cached_property
    def conceded(self) -> np.ndarray:
        """Runs that count against the bowler."""
        return self.book["total_runs"] - self.book["byes"] - self.book["legbyes"]

    @cached_property
    def credited(self) -> np.ndarray:
        """Whether the bowler took a wicket."""
        return (~np.isin(self.book["kind"], _NOT_THE_BOWLERS)).astype(np.int64)

    @cached_property
    def deliveries(self) -> np.ndarray:
        """Deliveries of the innings before this one."""
        return self.in_innings.before(np.ones(len(self.book), np.int64))

    @cached_property
    def runs(self) -> np.ndarray:
        """Runs of the innings before this delivery."""
        return self.in_innings.before(self.book["total_runs"])

    @cached_property
    def wickets(self) -> np.ndarray:
        """Wickets of the innings before this delivery."""
        return self.in_innings.before(self.book["wickets"])

    @cached_property
    def legal_balls(self) -> np.ndarray:
        """Legal balls of the innings before this delivery."""
        return self.in_innings.before(self.legal)

    @cached_property
    def super_over(self) -> np.ndarray:
        """Whether the innings is a super over."""
        return self.of_innings([innings.super_over for innings in self.book.innings]).astype(bool)

    @cached_property
    def chasing(self) -> np.ndarray:
        """Whether the innings chases a target: the second one, or the second super over."""
        return self.current("innings") % 2 == 1

    @cached_property
    def target(self) -> np.ndarray:
        """Runs the chasing side needs to win, as far as known at the time; 0 in the first innings."""
        return self.of_innings(targets(self.book)[:, 0])

    @cached_property
    def allotted_balls(self) -> np.ndarray:
        """Legal balls of a whole innings, as far as known at the time."""
        return self.of_innings(targets(self.book)[:, 1])

    @cached_property
    def balls_left(self) -> np.ndarray:
        """Legal balls to come, this one included; never negative."""
        return np.maximum(self.allotted_balls - self.legal_balls, 0)

    @cached_property
    def free_hit(self) -> np.ndarray:
        """Whether the delivery is a free hit: the last one other than wides was a no-ball."""
        last = self.in_innings.previous(self.faced > 0)
        return np.where(last >= 0, self.book["noballs"][last] > 0, False)

    @cached_property
    def batters(self) -> BattingPair:
        """Both batters at every delivery."""
        return BattingPair(self.book)

    @property
    def batting_positions(self) -> tuple[np.ndarray, np.ndarray]:
        """The place in the batting order (0 = first) of striker and non-striker at each delivery."""
        return self.batters.ends(self.batters.position)

    @property
    def batting_entries(self) -> np.ndarray:
        """Legal balls of the innings before each of the two batters came in; as `batters`, striker first."""
        return self.batters.on_arrival(self.legal_balls[self.batters.delivery])

    def of_innings(self, values: object) -> np.ndarray:
        """A value of each innings, repeated for each of its deliveries."""
        return np.asarray(values)[self.book.innings_of] if len(self.book) else np.empty(0)

    def by_player(self, *columns: str) -> Groups:
        """Deliveries of an innings that share the players in these columns."""
        key = self.book.innings_of
        for column in columns:
            key = key * _PLAYERS + self.book[column]
        return Groups(key)


def targets(book: Scorebook) -> np.ndarray:
    """(innings, 2): target (0 = none) and legal balls of each innings, as known when it began.

    A file gives the final target. If it is one more than the other side's total, the target and its overs were known
    from the start. Otherwise rain revised it, perhaps during the chase, so the unrevised one is used: no leakage.
    """
    totals = np.bincount(book.innings_of, book["total_runs"], len(book.innings)).astype(np.int64)
    result = np.zeros((len(book.innings), 2), np.int64)
    number = 0
    for index, innings in enumerate(book.innings):
        number = number + 1 if index and book.innings_match[index] == book.innings_match[index - 1] else 0
        balls = 6 if innings.super_over else OVERS * 6
        target = 0
        if number % 2 == 1:
            # Penalty runs are not part of any delivery.
            target = int(totals[index - 1]) + book.innings[index - 1].penalty_runs + 1
            if innings.target_runs == target and not innings.super_over:
                # 12.3 overs are 12 overs and 3 balls.
                whole = int(innings.target_overs)
                balls = whole * 6 + round((innings.target_overs - whole) * 10)
        result[index] = target, max(balls, 6)
    return result
