"""Where a match stands: the innings in progress, who takes part, and what the laws say about the next ball."""

from dataclasses import dataclass, field, replace

import numpy as np

from lockstep.workloads.cricket.columns import ROLES
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.knowledge import Knowledge
from lockstep.workloads.cricket.features.scoreboard import targets
from lockstep.workloads.cricket.matches.match import OVERS, Innings, Match, Row
from lockstep.workloads.cricket.matches.scorebook import Scorebook, collect

ELEVEN, WICKETS, BALLS = 11, 10, 6
QUOTA = 4
"""Overs that a bowler may bowl."""
ATTACK = 6
"""Bowlers that a side is expected to use; the others bowl only when none of these may."""
_BATS_AT = {
    **{"opener": 0, "top_order": 1, "keeper": 2, "middle_order": 3, "allrounder": 4},
    **{"finisher": 5, "unknown": 5, "bowler": 6},
}
"""In which order roles usually come in."""
_COLUMN = {name: place for place, name in enumerate(Row._fields)}


class NotForecast(ValueError):
    """Says why a match has no next ball that could be forecast."""


@dataclass(frozen=True)
class NextBall:
    """The ball to come: where in the innings, and between whom; players are numbers of the match."""

    over: int
    ball_in_over: int
    striker: int
    nonstriker: int
    bowler: int
    guessed: tuple[str, ...] = ()
    """Whom the file does not tell: a batter after a wicket, the bowler of a new over."""


@dataclass(frozen=True)
class Situation:
    """A match in progress. Every side has eleven players: those that the file does not name are strangers."""

    match: Match
    """With a second innings, if the first has ended, and with everybody in `players`; its rows stay untouched."""
    innings: int
    rows: np.ndarray
    """(t, len(Row._fields)): the deliveries of the innings in progress."""
    target: int
    """Runs that win; 0 in the first innings."""
    allotted: int
    """Legal balls of the innings."""
    elevens: dict[str, list[int]] = field(default_factory=dict)
    """Team -> its players' numbers."""

    def column(self, name: str) -> np.ndarray:
        """One field of the innings' deliveries."""
        return self.rows[:, _COLUMN[name]].astype(np.int64)

    @property
    def batting(self) -> str:
        """The side that bats."""
        return self.match.innings[self.innings].team

    def other(self, team: str) -> str:
        """The other side."""
        one, other = self.match.teams
        return other if team == one else one

    @property
    def legal(self) -> np.ndarray:
        """(t,) whether each delivery counts towards its over."""
        return (self.column("wides") == 0) & (self.column("noballs") == 0)

    @property
    def runs(self) -> int:
        """Runs of the innings so far."""
        return int(self.column("total_runs").sum())

    @property
    def wickets(self) -> int:
        """Wickets of the innings so far."""
        return int(self.column("wickets").sum())

    @property
    def revised(self) -> bool:
        """Whether rain has changed the target, which features leave out."""
        given = self.match.innings[self.innings].target_runs
        return self.innings == 1 and given not in (0, self.target)

    def book(self, ball: NextBall | None = None) -> Scorebook:
        """The match as a scorebook; with a ball to come as its last delivery, whose outcome is left empty."""
        rows = self.match.rows.copy()
        if ball is not None:
            coming = dict.fromkeys(Row._fields, 0) | {"player_out": -1, "fielder": -1, "innings": self.innings}
            coming |= {"over": ball.over, "ball_in_over": ball.ball_in_over, "powerplay": self.powerplay(ball.over)}
            coming |= {"batter": ball.striker, "nonstriker": ball.nonstriker, "bowler": ball.bowler}
            rows = np.concatenate([rows, np.array([[coming[name] for name in Row._fields]], rows.dtype)])
        return collect([replace(self.match, rows=rows)])

    def powerplay(self, over: int) -> int:
        """Whether fielding restrictions are in force in an over."""
        return int(over < self.match.innings[self.innings].powerplay_overs)


def situation(match: Match) -> Situation:
    """Where a match stands; NotForecast if it has not begun, is over, or is in a super over."""
    if not match.innings:
        raise NotForecast("no innings has begun")
    if len(set(match.players.values())) < len(match.players):
        raise NotForecast("two of its players have the same key in the registry")
    number = len(match.innings) - 1
    if number > 1 or match.innings[number].super_over:
        raise NotForecast("it is in a super over, or over")
    found = _at(replace(match, players=dict(match.players)), number)
    if not _ended(found):
        return _with_elevens(found)
    if number == 1:
        raise NotForecast("it is over")
    chase = Innings(found.other(found.batting), False, 0, float(OVERS), 0)
    return _with_elevens(_at(replace(found.match, innings=[*match.innings, chase]), 1))


def _at(match: Match, number: int) -> Situation:
    rows = match.rows[match.rows[:, 0] == number]
    target, allotted = targets(collect([replace(match, rows=match.rows.copy())]))[number]
    return Situation(match, number, rows, int(target), int(allotted))


def _ended(at: Situation) -> bool:
    done = at.wickets >= WICKETS or int(at.legal.sum()) >= at.allotted
    # A file may lack overs in between; none comes after the last.
    done = done or int(at.legal[at.column("over") == OVERS - 1].sum()) >= BALLS
    return done or (at.target > 0 and at.runs >= at.target)


def _with_elevens(at: Situation) -> Situation:
    """The situation with eleven players a side: the listed, those who played, and strangers."""
    players, elevens = at.match.players, {}
    for team in at.match.teams:
        bats = [number for number, innings in enumerate(at.match.innings) if innings.team == team]
        here = np.isin(at.match.rows[:, 0], bats)
        seen = [*at.match.rows[here][:, [_COLUMN["batter"], _COLUMN["nonstriker"]]].reshape(-1).tolist()]
        seen += at.match.rows[~here][:, _COLUMN["bowler"]].tolist()
        eleven = list(dict.fromkeys([*at.match.squads.get(team, []), *seen]))
        for stranger in range(len(eleven), ELEVEN):
            eleven.append(len(players))
            players[f"{team}, player {stranger + 1}"] = f"stranger:{team}:{stranger}"
        elevens[team] = eleven
    return replace(at, elevens=elevens)


def batting_order(
    at: Situation, team: str, index: EntityIndex, knowledge: Knowledge, ball: NextBall | None = None
) -> list[int]:
    """Who has batted in the innings in progress, in that order, then the batters of `ball`, the rest by usual role.

    The order of the file's list is not used: in files of the past it is the order in which they came to bat.
    """
    faced = [] if team != at.batting else at.rows[:, [_COLUMN["batter"], _COLUMN["nonstriker"]]].reshape(-1).tolist()
    if ball is not None and team == at.batting:
        # A caller may have named somebody who would usually come in later.
        faced += [ball.striker, ball.nonstriker]
    roles, names = knowledge.roles[ids_of(at, index)].tolist(), list(at.match.players)
    rest = sorted(at.elevens[team], key=lambda player: (_BATS_AT[ROLES[roles[player]]], names[player]))
    return list(dict.fromkeys([*faced, *rest]))


def attack(at: Situation, team: str, index: EntityIndex, knowledge: Knowledge) -> list[int]:
    """The side's players, those first who have bowled today, then by how much they bowled in earlier matches."""
    today = np.zeros(len(at.match.players), np.int64)
    if team != at.batting:
        np.add.at(today, at.column("bowler"), 1)
    known = knowledge.counts["bowler"].sum(1)[ids_of(at, index)].tolist()
    names = list(at.match.players)
    return sorted(at.elevens[team], key=lambda player: (-today[player], -known[player], names[player]))


def ids_of(at: Situation, index: EntityIndex) -> np.ndarray:
    """(players,) the id of each of the match's players."""
    number = {key: place + 1 for place, (key, _) in enumerate(index.players)}
    return np.array([number.get(key, 0) for key in at.match.players.values()], np.int64)


def next_ball(at: Situation, order: list[int], bowlers: list[int]) -> NextBall:
    """The ball to come, by the laws; whom they leave open is guessed from the batting order and the attack."""
    if not len(at.rows):
        return NextBall(0, 0, order[0], order[1], bowlers[0], ("striker", "nonstriker", "bowler"))
    last = Row(*(int(value) for value in at.rows[-1]))
    guessed = []
    pair = [last.batter, last.nonstriker]
    if last.kind:
        # Where all have batted, somebody who had retired comes back.
        fresh = [player for player in order if player not in _came_in(at)]
        coming = next(player for player in [*fresh, *order] if player not in pair)
        place = 1 if last.player_out == last.nonstriker else 0
        pair[place] = coming
        guessed.append("batter")
    # Runs that were run: a wide and a no-ball cost one without running.
    if (last.total_runs - (last.wides > 0) - (last.noballs > 0)) % 2:
        pair.reverse()
    over, ball, bowler = last.over, last.ball_in_over + 1, last.bowler
    if int(at.legal[at.column("over") == last.over].sum()) >= BALLS:
        pair.reverse()
        over, ball, bowler = last.over + 1, 0, _next_bowler(at, last, bowlers)
        guessed.append("bowler")
    return NextBall(over, ball, pair[0], pair[1], bowler, tuple(guessed))


def _came_in(at: Situation) -> set[int]:
    return {*at.column("batter").tolist(), *at.column("nonstriker").tolist()}


def overs_bowled(at: Situation) -> np.ndarray:
    """(players,) in how many overs each has bowled."""
    pairs = np.unique(np.stack([at.column("over"), at.column("bowler")]), axis=1)
    return np.bincount(pairs[1], minlength=len(at.match.players))


def _next_bowler(at: Situation, last: Row, bowlers: list[int]) -> int:
    """Who bowled from that end before, if he may bowl on; else the first of the attack who may."""
    overs = overs_bowled(at)
    before = at.column("bowler")[at.column("over") == last.over - 1]
    wanted = [*before[-1:].tolist(), *bowlers]
    return next((player for player in wanted if player != last.bowler and overs[player] < QUOTA), wanted[-1])
