"""A simulated league: matches between players with hidden skills, for training without any data.

The log-odds of an outcome are a sum of effects: phase of the innings, chase, balls the batter has faced, venue, day,
and the hidden skills of batter and bowler. All of these can be learned from the workload's features. Some players
appear in few matches, so that validation has players unknown to training, as real data does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np

from lockstep.workloads.cricket.columns import OUTCOME_RUNS, OUTCOMES
from lockstep.workloads.cricket.matches.match import KINDS, Innings, Match, Row

_TEAMS, _SQUAD, _ELEVEN, _VENUES = 10, 26, 11, 12
_BASE = np.log([0.38, 0.35, 0.07, 0.005, 0.10, 0.045, 0.05])
"""Log-odds of the outcomes of an average ball: about their frequencies in men's T20 internationals."""
_PHASE = np.array(
    [
        [0.25, -0.3, -0.3, 0.0, 0.35, -0.1, -0.1],
        [-0.05, 0.15, 0.0, 0.0, -0.3, -0.1, -0.1],
        [-0.5, 0.0, 0.3, 0.0, 0.2, 0.8, 0.6],
    ]
)
"""How powerplay, middle and death overs shift the log-odds of the outcomes."""
_ATTACK = np.array([-0.3, -0.2, 0.0, 0.0, 0.4, 0.8, 0.5])
"""How one unit of attacking intent shifts them."""
_BOWLERS_BY_OVER = np.array([0, 1, 0, 1, 0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4, 0, 1])
"""Which of five bowlers bowls each over: four overs each, nobody twice in a row; quick bowlers open and close."""
_QUICK = 2
"""Bowlers below this number are quick."""
_KINDS = [KINDS.index(kind) for kind in ("caught", "bowled", "lbw", "run out", "stumped")]
_KIND_PROBABILITIES = (0.62, 0.2, 0.08, 0.06, 0.04)
_CAUGHT, _STUMPED = KINDS.index("caught"), KINDS.index("stumped")
_WICKET = OUTCOMES.index("wicket")
_NOBALLS = 0.005
"""Probability of a no-ball."""
_MAX_STEPS = 170
"""Deliveries after which an innings is cut off; 120 legal balls and the usual wides take far fewer."""
_BALLS = 120
"""Legal balls of an innings."""


@dataclass(frozen=True)
class League:
    """The hidden skills: shifts of the log-odds of the seven outcomes."""

    batting: np.ndarray
    """(players, 7)."""
    bowling: np.ndarray
    """(players, 7)."""
    wides: np.ndarray
    """(players,): probability of a wide."""
    venues: np.ndarray
    """(venues, 7)."""


def hidden_league(random: np.random.Generator) -> League:
    """Draw the skills: power, care and rotation of batters; tightness and wickets of bowlers; sizes of grounds."""
    players = _TEAMS * _SQUAD
    power, care, rotation = random.normal(size=(3, players, 1)) * [[[0.6]], [[0.4]], [[0.3]]]
    team = np.repeat(random.normal(size=(_TEAMS, 1)) * 0.2, _SQUAD, 0)
    # Players low in the order bat worse.
    place = np.tile(np.arange(_SQUAD) % _ELEVEN, _TEAMS)[:, None]
    tail = np.maximum(place - 5, 0) * 0.15
    batting = power * [-0.1, -0.3, 0, 0, 0.5, 1.2, 0.2] + rotation * [-0.6, 0.6, 0.5, 0.3, 0, 0, 0]
    batting = batting - (care + team - tail) * [0.4, 0, 0, 0, -0.3, -0.3, 1.0]
    tight, taker = random.normal(size=(2, players, 1)) * 0.35
    bowling = tight * [0.6, 0, -0.2, 0, -0.7, -0.8, 0] + taker * [0.1, 0, 0, 0, 0.1, 0.2, 1.0]
    wides = np.clip(random.gamma(2.0, 0.018, players), 0.002, 0.15)
    venues = random.normal(size=(_VENUES, 1)) * 0.35 * [-0.3, 0, 0, 0, 0.5, 1.0, 0]
    return League(batting, bowling, wides, venues)


def simulate(matches: int, seed: int) -> Iterator[Match]:
    """The matches of a league; the same seed gives the same matches."""
    # The order of the draws below is part of the league: another order gives other matches for the same seed.
    random = np.random.default_rng([seed, matches])
    league = hidden_league(random)
    teams = np.array([random.choice(_TEAMS, 2, replace=False) for _ in range(matches)])
    elevens = np.stack([_elevens(random, teams[:, side]) for side in (0, 1)], 1)
    venue = random.integers(_VENUES, size=matches)
    # Conditions of the day, the same for both sides.
    shared = league.venues[venue] + random.normal(size=(matches, 7)) * 0.12
    sides = [_Innings(league, elevens[:, side], elevens[:, 1 - side], shared) for side in (0, 1)]
    first = sides[0].play(random, np.zeros(matches, np.int64))
    target = sides[0].runs + 1
    second = sides[1].play(random, target)
    for number in range(matches):
        rows = np.concatenate([_rows(played, number, order) for order, played in enumerate((first, second))])
        yield _match(number, matches, teams[number], elevens[number], int(venue[number]), rows, int(target[number]))


def _elevens(random: np.random.Generator, team: np.ndarray) -> np.ndarray:
    """(matches, 11) players in batting order: the first of each squad play nearly always, the last rarely."""
    # The largest of log-weights plus Gumbel noise are a weighted sample without replacement.
    preference = -0.45 * np.arange(_SQUAD) + random.gumbel(size=(len(team), _SQUAD))
    chosen = np.sort(np.argsort(-preference, axis=1)[:, :_ELEVEN] % _SQUAD, axis=1)
    # A player's number modulo eleven is the place in the order that `hidden_league` gave the skills for.
    order = np.argsort(chosen % _ELEVEN, axis=1, kind="stable")
    return team[:, None] * _SQUAD + np.take_along_axis(chosen, order, 1)


@dataclass
class _Played:
    """An innings of all matches at once: the delivery of each match at each step."""

    rows: np.ndarray
    """(steps, matches, len(Row._fields)); players are 0-10 of the batting and 11-21 of the bowling side."""
    active: np.ndarray
    """(steps, matches) bool: whether the match's innings was still in progress."""


class _Innings:
    """One innings of every match, all advancing by one delivery at a time."""

    def __init__(self, league: League, batting: np.ndarray, bowling: np.ndarray, shared: np.ndarray) -> None:
        self.league, self.batting, self.bowling, self.shared = league, batting, bowling, shared
        count = len(batting)
        self.every = np.arange(count)
        self.runs, self.wickets, self.balls, self.ball_in_over = np.zeros((4, count), np.int64)
        self.free_hit = np.zeros(count, bool)
        self.striker, self.other = np.zeros(count, np.int64), np.ones(count, np.int64)
        self.faced = np.zeros((count, _ELEVEN), np.int64)

    def play(self, random: np.random.Generator, target: np.ndarray) -> _Played:
        """Play to the end; a target of 0 means a first innings."""
        rows, active = [], []
        for _ in range(_MAX_STEPS):
            going = (self.wickets < 10) & (self.balls < _BALLS) & ((target == 0) | (self.runs < target))
            if not going.any():
                break
            row = self._deliver(random, target)
            rows.append(np.stack([np.asarray(column, np.int16) for column in row], 1))
            active.append(going)
            self._advance(row, going)
        return _Played(np.stack(rows), np.stack(active))

    def _log_odds(self, over: np.ndarray, bowler: np.ndarray, target: np.ndarray) -> np.ndarray:
        # Runs an over that the batter aims for: what the chase needs, or a usual 8.
        needed = np.where(target > 0, (target - self.runs) * 6 / np.maximum(_BALLS - self.balls, 6), 8.0)
        set_in = np.minimum(self.faced[self.every, self.striker], 25) / 25 - 0.4
        intent = np.clip((needed - 8) / 8, -0.5, 1.5) + set_in - 0.06 * self.wickets
        odds = _BASE + _PHASE[(over >= 6).astype(int) + (over >= 16)] + self.shared + intent[:, None] * _ATTACK
        odds = odds + self.league.batting[self.batting[self.every, self.striker]] + self.league.bowling[bowler]
        # Off a free hit a batter can only be run out, which happens rarely.
        odds[:, _WICKET] = np.where(self.free_hit, -9.0, odds[:, _WICKET])
        return odds

    def _deliver(self, random: np.random.Generator, target: np.ndarray) -> Row:
        """Draw the next delivery of every match; each field of the row is an array over matches."""
        over = np.minimum(self.balls // 6, 19)
        turn = _BOWLERS_BY_OVER[over]
        bowler = self.bowling[self.every, _ELEVEN - 1 - turn]
        odds = self._log_odds(over, bowler, target)
        # One number for both: its lower end makes a wide, its upper end a no-ball, so no delivery is both.
        uniform = random.random(len(over))
        wide = uniform < self.league.wides[bowler]
        # Adding Gumbel noise and taking the largest samples from the softmax.
        outcome = np.where(wide, 0, np.argmax(odds + random.gumbel(size=odds.shape), 1))
        out = outcome == _WICKET
        noball = (uniform > 1 - _NOBALLS) & ~wide & ~out
        kind = random.choice(_KINDS, len(over), p=_KIND_PROBABILITIES)
        # No stumpings off quick bowlers: the keeper stands too far back. Roles are inferred from this.
        kind = np.where(out, np.where((kind == _STUMPED) & (turn < _QUICK), _CAUGHT, kind), 0)
        hit = np.array(OUTCOME_RUNS)[outcome]
        nothing = np.zeros_like(over)
        columns = {
            "innings": nothing,
            "over": over,
            "ball_in_over": self.ball_in_over,
            "batter": self.striker,
            "bowler": 2 * _ELEVEN - 1 - turn,
            "nonstriker": self.other,
            "batter_runs": hit,
            "total_runs": hit + wide + noball,
            "wides": wide,
            "noballs": noball,
            "byes": nothing,
            "legbyes": nothing,
            "kind": kind,
            "wickets": out,
            "player_out": np.where(out, self.striker, -1),
            # The first of the eleven keeps wicket.
            "fielder": np.where(np.isin(kind, (_STUMPED, _CAUGHT)), _ELEVEN, -1),
            "ran_all": nothing,
            "powerplay": over < 6,
        }
        return Row(**columns)

    def _advance(self, row: Any, going: np.ndarray) -> None:
        """Update the score of the matches that are still in progress."""
        wide, noball, out = row.wides.astype(bool), row.noballs.astype(bool), row.wickets.astype(bool)
        legal = going & ~wide & ~noball
        self.runs = self.runs + row.total_runs * going
        self.wickets = self.wickets + (out & going)
        self.balls = self.balls + legal
        self.faced[self.every, self.striker] += going & ~wide
        # A free hit lasts until a delivery that is not a wide.
        self.free_hit = noball | (wide & self.free_hit)
        over_ends = legal & (self.balls % 6 == 0)
        self.ball_in_over = np.where(over_ends, 0, self.ball_in_over + 1)
        # A new batter replaces the striker; batters change ends after odd runs, and the strike changes after an over.
        facing = np.where(out & going, np.minimum(self.wickets + 1, _ELEVEN - 1), self.striker)
        crossed = (going & (row.batter_runs % 2 == 1)) ^ over_ends
        self.striker, self.other = np.where(crossed, self.other, facing), np.where(crossed, facing, self.other)


def _rows(played: _Played, match: int, innings: int) -> np.ndarray:
    rows = played.rows[played.active[:, match], match]
    rows[:, Row._fields.index("innings")] = innings
    if innings == 1:
        # Numbers 0-10 are the first innings' batting side, which now bowls: swap the two elevens.
        for column in map(Row._fields.index, ("batter", "nonstriker", "bowler", "player_out", "fielder")):
            moved = (rows[:, column] + _ELEVEN) % (2 * _ELEVEN)
            rows[:, column] = np.where(rows[:, column] < 0, -1, moved)
    return rows


def _match(
    number: int, matches: int, teams: np.ndarray, elevens: np.ndarray, venue: int, rows: np.ndarray, target: int
) -> Match:
    names = [f"Team {team + 1}" for team in teams]
    players = [f"Player {player // _SQUAD + 1}-{player % _SQUAD + 1:02d}" for player in elevens.reshape(-1)]
    # Spread over ten years, as features depend on the year.
    day = date(2015, 1, 1) + timedelta(days=3650 * number // matches)
    innings = [Innings(team, False, runs, 20.0, 0) for team, runs in zip(names, (0, target), strict=True)]
    return Match(
        file=f"league-{number:05d}.json",
        date=day.isoformat(),
        venue=f"Ground {venue + 1}",
        city="",
        teams=(names[0], names[1]),
        female=False,
        toss_winner=names[0],
        players={name: name for name in players},
        squads={names[0]: list(range(_ELEVEN)), names[1]: list(range(_ELEVEN, 2 * _ELEVEN))},
        innings=innings,
        rows=rows,
    )
