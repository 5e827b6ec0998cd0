"""Roles of players, inferred from matches: batting role, wicket-keeping, and pace or spin bowling."""

import numpy as np

from lockstep.compute.device_array import look_up
from lockstep.workloads.cricket.columns import ROLES
from lockstep.workloads.cricket.features.contexts import phase_of_over
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.matches.match import KINDS

_ROLE = {name: number for number, name in enumerate(ROLES)}
_BATTING = np.array([_ROLE[name] for name in ("opener", "top_order", "middle_order", "finisher")])
_BATTING_STARTS = (1.5, 3.5, 5.5)
"""Mean places in the order (0 = first) at which the next batting role begins."""
_LOWER_ORDER = 6.5
"""Mean place in the order from which a player who bowls is a bowler, not an all-rounder."""
_BOWLS = 9.0
"""Legal balls per match from which a player counts as one who bowls."""
_MIDDLE = 1
"""The middle overs, as numbered by `phase_of_over`."""


def batting_role(position: np.ndarray) -> np.ndarray:
    """The role of a batter by place in the order (0 = first)."""
    return look_up(_BATTING, np.searchsorted(_BATTING_STARTS, position, side="right"))


def infer_roles(scoreboard: Scoreboard, people: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """(size,) int64: the role of each player id, from the deliveries in the mask `rows`; unknown if not seen there."""
    book = scoreboard.book
    pair = scoreboard.batters
    # One row for each innings that a player bats in.
    comes = pair.arrives & rows[pair.delivery]
    batters = people[pair.player[comes]]
    batted = np.bincount(batters, minlength=size)
    position = np.bincount(batters, pair.position[comes], size) / np.maximum(batted, 1)
    # Who never batted comes after everybody.
    position[batted == 0] = np.inf
    played = _matches_played(scoreboard, people, rows, size)
    bowled = np.bincount(people[book["bowler"][rows]], scoreboard.legal[rows], size) / np.maximum(played, 1)
    keeps = keepers(scoreboard, people, rows, size)

    role = np.where(batted > 0, batting_role(np.minimum(position, 11)), _ROLE["unknown"])
    bowls = bowled >= _BOWLS
    role[bowls] = np.where(position[bowls] < _LOWER_ORDER, _ROLE["allrounder"], _ROLE["bowler"])
    role[keeps & ~bowls] = _ROLE["keeper"]
    role[played == 0] = _ROLE["unknown"]
    role[0] = _ROLE["unknown"]
    return role


def keepers(scoreboard: Scoreboard, people: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """(size,) bool: who keeps wicket, which is not recorded: at least two stumpings, or one in few matches."""
    stumped = rows & (scoreboard.book["kind"] == KINDS.index("stumped"))
    times = np.bincount(people[scoreboard.book["fielder"][stumped]], minlength=size)
    found = (times >= 2) | ((times == 1) & (_matches_played(scoreboard, people, rows, size) <= 6))
    found[0] = False
    return found


def spin_share(scoreboard: Scoreboard, people: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """(size,) in 0..1: probability that each player id bowls spin; exactly 0.5 if nothing is known.

    Keepers stump off spin and catch off pace; spinners bowl the middle overs, quick bowlers the first and the last.
    """
    book = scoreboard.book
    bowler = people[book["bowler"]]
    keeper = keepers(scoreboard, people, rows, size)

    def count(events: np.ndarray) -> np.ndarray:
        return np.bincount(bowler[rows & events], minlength=size)

    kind = book["kind"]
    caught_behind = (kind == KINDS.index("caught")) & keeper[people[book["fielder"]]]
    balls = count(scoreboard.legal > 0)
    middle = count((scoreboard.legal > 0) & (phase_of_over(scoreboard) == _MIDDLE))
    # Log-odds of spin. Calibrated so that a bowler without stumpings or catches behind has no evidence either way.
    stumped = count(kind == KINDS.index("stumped"))
    evidence = 1.5 * np.log((stumped + 0.3) / (count(caught_behind) + 1.5) * 5.0)
    # Spinners bowl more than about 55% of their balls in the middle overs; adding a match's 24 damps short records.
    evidence += 8.0 * (middle - 0.55 * balls) / (balls + 24)
    share = 1 / (1 + np.exp(-np.clip(evidence, -6, 6)))
    share[(balls == 0) | (np.arange(size) == 0)] = 0.5
    return share


def _matches_played(scoreboard: Scoreboard, people: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    book = scoreboard.book
    pairs = [people[book[column][rows]] + book.match[rows] * size for column in ("batter", "nonstriker", "bowler")]
    return np.bincount(np.unique(np.concatenate(pairs)) % size, minlength=size)
