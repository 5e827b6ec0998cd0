"""Parses one Cricsheet match file (format 1.0.0 or 1.1.0) into rows of small integers, or says why it is invalid.

Special cases: a match without deliveries (abandoned, awarded) is kept and gives no rows, as does an innings without
deliveries (forfeited). Super overs are innings like others, marked as such. Every match has 20 overs a side, whatever
its file says (some T20 matches have `overs: 50`); an over beyond the 20th makes the file invalid. Date, city, toss,
players, registry, extras, wickets, powerplays and target may be missing.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

import numpy as np

OVERS = 20
POWERPLAY_OVERS = 6
MAX_DELIVERIES = 60
"""The most deliveries that an over may have; the longest on record have under 20."""
MAX_RUNS = 99
"""The most runs that a file may give for one delivery; a scorebook stores them as int8."""
KINDS = ("none", "bowled", "caught", "lbw", "run out", "stumped", "other", "retired")
"""Kinds of dismissal; `retired` (hurt or not out) is an outcome of the delivery but costs no wicket."""
_KIND = {kind: number for number, kind in enumerate(KINDS)}
# Cricsheet's other spellings; kinds that are not listed at all become "other".
_KIND |= {"caught and bowled": _KIND["caught"], "retired hurt": _KIND["retired"], "retired not out": _KIND["retired"]}


class Row(NamedTuple):
    """One delivery. Players are numbers within the match; -1 is nobody."""

    innings: int
    over: int
    ball_in_over: int
    batter: int
    bowler: int
    nonstriker: int
    batter_runs: int
    total_runs: int
    wides: int
    noballs: int
    byes: int
    legbyes: int
    kind: int
    wickets: int
    """Wickets that fell with the delivery; two are possible."""
    player_out: int
    fielder: int
    ran_all: int
    """Whether four or six runs were run rather than hit as a boundary."""
    powerplay: int
    """Whether the fielding restrictions were in force, which is visible at the time."""


@dataclass
class Innings:
    """One innings apart from its deliveries."""

    team: str
    super_over: bool
    target_runs: int
    target_overs: float
    penalty_runs: int
    powerplay_overs: int = POWERPLAY_OVERS
    """Overs with fielding restrictions, from the first on."""


@dataclass
class Match:
    """One match file, read."""

    file: str
    date: str
    venue: str
    city: str
    teams: tuple[str, str]
    female: bool
    toss_winner: str
    players: dict[str, str] = field(default_factory=dict)
    """Name in this match -> the same person's key in all matches."""
    squads: dict[str, list[int]] = field(default_factory=dict)
    """Team -> its players' numbers, where the file lists them."""
    innings: list[Innings] = field(default_factory=list)
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, len(Row._fields)), np.int16))
    """(deliveries, len(Row._fields)) int16."""


class NotAMatch(ValueError):
    """Says why a file is not a match."""


def read_match(file: str, content: bytes) -> Match:
    """Parse the content of a match file; raises NotAMatch if it is invalid."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotAMatch(f"not valid JSON ({type(error).__name__}); the file may be cut short") from error
    info = _get(document, "info", dict, "the file")
    teams = _get(info, "teams", list, "info")
    if len(teams) != 2 or not all(_is_name(team) for team in teams) or teams[0] == teams[1]:
        raise NotAMatch("info.teams is not a pair of names")
    match = Match(
        file=file,
        date=_date(info),
        venue=_text(info, "venue"),
        city=_text(info, "city"),
        teams=(teams[0], teams[1]),
        female=info.get("gender") == "female",
        toss_winner=_text(info["toss"], "winner") if isinstance(info.get("toss"), dict) else "",
    )
    people = _People(info)
    match.squads = {team: [people.number(name) for name in names] for team, names in people.squads(teams)}
    rows: list[Row] = []
    for number, innings in enumerate(_get(document, "innings", list, "the file", [])):
        where = f"innings {number + 1}"
        match.innings.append(_innings(innings, match.teams, where))
        rows += _deliveries(innings, number, people, where)
    match.players = people.keys
    if rows:
        match.rows = np.array(rows, dtype=np.int16)
    return match


class _People:
    """The players of one match: numbers in order of appearance, and keys that are the same in all matches."""

    def __init__(self, info: dict[str, Any]) -> None:
        registry = info.get("registry")
        people = registry.get("people") if isinstance(registry, dict) else None
        self._registry = people if isinstance(people, dict) else {}
        self._players = info.get("players")
        self._numbers: dict[str, int] = {}
        self.keys: dict[str, str] = {}

    def number(self, name: Any) -> int:
        """The player's number in this match."""
        known = self._numbers.get(name) if isinstance(name, str) else None
        if known is not None:
            return known
        if not _is_name(name):
            raise NotAMatch("a player without a name")
        key = self._registry.get(name)
        # Without a registry the name must serve as the key; the prefix keeps it apart from registry keys.
        self.keys[name] = str(key) if _is_name(key) else f"name:{name}"
        self._numbers[name] = len(self._numbers)
        return self._numbers[name]

    def squads(self, teams: list[str]) -> Iterable[tuple[str, list[Any]]]:
        """The listed players of each team."""
        listed = self._players if isinstance(self._players, dict) else {}
        return ((team, listed[team]) for team in teams if isinstance(listed.get(team), list))


def _innings(innings: Any, teams: tuple[str, str], where: str) -> Innings:
    team = _get(innings, "team", str, where)
    if team not in teams:
        raise NotAMatch(f"{where}: {team[:40]!r} is not one of the match's teams")
    target = innings.get("target")
    target = target if isinstance(target, dict) else {}
    penalty = innings.get("penalty_runs")
    penalty = penalty if isinstance(penalty, dict) else {}
    return Innings(
        team=team,
        super_over=bool(innings.get("super_over")),
        target_runs=_whole(target.get("runs", 0), 0, 999, f"{where}: target"),
        target_overs=_overs(target.get("overs", OVERS), f"{where}: target"),
        penalty_runs=sum(_whole(runs, 0, MAX_RUNS, f"{where}: penalty_runs") for runs in penalty.values()),
        powerplay_overs=_last_powerplay_over(innings, where) + 1,
    )


def _deliveries(innings: dict[str, Any], number: int, people: _People, where: str) -> list[Row]:
    powerplay = _last_powerplay_over(innings, where)
    rows: list[Row] = []
    before = -1
    for over in _get(innings, "overs", list, where, []):
        over_number = _whole(_get(over, "over", int, where), 0, OVERS - 1, f"{where}: over")
        if over_number <= before:
            raise NotAMatch(f"{where}: over {over_number} comes after over {before}")
        before = over_number
        deliveries = _get(over, "deliveries", list, f"{where}, over {over_number}")
        if len(deliveries) > MAX_DELIVERIES:
            raise NotAMatch(f"{where}, over {over_number}: {len(deliveries)} deliveries, more than {MAX_DELIVERIES}")
        fielding = int(over_number <= powerplay)
        for ball, delivery in enumerate(deliveries):
            try:
                rows.append(_row(delivery, number, over_number, ball, people, fielding))
            except (NotAMatch, KeyError, TypeError, AttributeError, IndexError) as error:
                missing = isinstance(error, KeyError)
                reason = f"no {error}" if missing else error if isinstance(error, NotAMatch) else "not as expected"
                raise NotAMatch(f"{where}, over {over_number}, delivery {ball + 1}: {reason}") from error
    return rows


def _row(delivery: dict[str, Any], innings: int, over: int, ball: int, people: _People, powerplay: int) -> Row:
    runs = delivery["runs"]
    extras = delivery.get("extras") or {}
    wickets = delivery.get("wickets") or ()
    kind, player_out, fielder, cost = 0, -1, -1, 0
    # Two wickets can fall with one delivery; kind and player out are those of the first.
    for wicket in wickets[:2]:
        this = _KIND.get(wicket["kind"], _KIND["other"])
        cost += this != _KIND["retired"]
        if not kind:
            kind, player_out = this, people.number(wicket["player_out"])
            fielders = wicket.get("fielders") or ()
            # A substitute may be listed without a name.
            fielder = people.number(fielders[0]["name"]) if fielders and fielders[0].get("name") else -1
    return Row(
        innings,
        over,
        ball,
        people.number(delivery["batter"]),
        people.number(delivery["bowler"]),
        people.number(delivery["non_striker"]),
        _whole(runs["batter"], 0, MAX_RUNS, "runs.batter"),
        _whole(runs["total"], 0, MAX_RUNS, "runs.total"),
        _whole(extras.get("wides", 0), 0, MAX_RUNS, "wides"),
        _whole(extras.get("noballs", 0), 0, MAX_RUNS, "noballs"),
        _whole(extras.get("byes", 0), 0, MAX_RUNS, "byes"),
        _whole(extras.get("legbyes", 0), 0, MAX_RUNS, "legbyes"),
        kind,
        cost,
        player_out,
        fielder,
        int(bool(runs.get("non_boundary"))),
        powerplay,
    )


def _last_powerplay_over(innings: dict[str, Any], where: str) -> int:
    """The last over of the first powerplay. A row only says whether it is on: its length is not known beforehand."""
    periods = innings.get("powerplays")
    if not isinstance(periods, list) or not periods or not isinstance(periods[0], dict):
        return POWERPLAY_OVERS - 1
    # Written as over and ball: 5.6 is the sixth ball of over 5, counted from 0.
    return int(_overs(periods[0].get("to", POWERPLAY_OVERS - 1), f"{where}: powerplays"))


def _get(container: Any, key: str, kind: type, where: str, default: Any = None) -> Any:
    if not isinstance(container, dict):
        raise NotAMatch(f"{where} is not a JSON object")
    value = container.get(key, default)
    # Not isinstance, which takes `true` for an int.
    if type(value) is not kind:
        raise NotAMatch(f"{where} has no {key!r}" if value is None else f"{where}: {key!r} is not as expected")
    return value


def _whole(value: Any, least: int, most: int, where: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise NotAMatch(f"{where} is {str(value)[:20]!r}, not a whole number from {least} to {most}")
    return value


def _overs(value: Any, where: str) -> float:
    # Up to 50, because some T20 matches are marked as having 50 overs.
    if type(value) not in (int, float) or not 0 <= value <= 50:
        raise NotAMatch(f"{where}: {str(value)[:20]!r} is not a number of overs")
    return float(value)


def _is_name(value: Any) -> bool:
    # Names are printed to terminals, so control characters are not allowed.
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _text(info: dict[str, Any], key: str) -> str:
    value = info.get(key)
    return str(value) if _is_name(value) else ""


def _date(info: dict[str, Any]) -> str:
    dates = info.get("dates")
    first = dates[0] if isinstance(dates, list) and dates else None
    # `fromisoformat` also accepts other forms, such as week dates.
    if not isinstance(first, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d", first, re.ASCII):
        return ""
    try:
        return date.fromisoformat(first).isoformat()
    except ValueError:
        return ""
