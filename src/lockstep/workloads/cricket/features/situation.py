"""The match before each delivery: score, chase, phase, time and wickets."""

from datetime import date

import numpy as np

from lockstep.workloads.cricket.features.ledger import Ledger
from lockstep.workloads.cricket.features.running import ratio
from lockstep.workloads.cricket.features.table import DEATH_OVER, POWERPLAY_OVERS

_ERA_BEGINS = 2005.0
_MIDDLE_OF_TIMES = 2018.0
"""The year that a match without a date is taken to be of."""


def situation(ledger: Ledger) -> dict[str, dict[str, np.ndarray]]:
    """The node types of the match, each with its columns."""
    return {
        "score_state": _score(ledger),
        "chase_state": _chase(ledger),
        "phase_state": _phase(ledger),
        "time_pressure": _time(ledger),
        "wicket_buffer": {"in_hand": (10 - ledger.wickets) / 10, "tail": ledger.wickets > 7},
    }


def required_rate(ledger: Ledger) -> np.ndarray:
    """Runs an over that the chase needs, at most 36; 0 in the first innings."""
    needed = np.maximum(ledger.target - ledger.runs, 0)
    return np.where(ledger.target > 0, np.minimum(ratio(needed * 6, ledger.balls_left, 36.0), 36.0), 0.0)


def run_rate(ledger: Ledger) -> np.ndarray:
    """Runs an over so far."""
    return ratio(ledger.runs * 6, ledger.legal_balls)


def progress_phase(ledger: Ledger) -> np.ndarray:
    """0 powerplay, 1 middle, 2 death, by the deliveries so far."""
    overs = ledger.deliveries // 6
    return (overs >= POWERPLAY_OVERS).astype(np.int64) + (overs >= DEATH_OVER)


def _score(ledger: Ledger) -> dict[str, np.ndarray]:
    book, balls = ledger.book, ledger.legal_balls
    return {
        "runs": ledger.runs / 250,
        "wickets": ledger.wickets / 10,
        "legal_balls": balls / 120,
        "second_innings": book["innings"] == 1,
        "women": np.array([match.female for match in book.matches], bool)[book.match],
        "rate": np.minimum(run_rate(ledger), 36) / 12,
        "boundary_share": ratio(ledger.in_innings.before(ledger.boundary), balls),
        "dot_share": ratio(ledger.in_innings.before(ledger.dot), balls),
        "extras_share": ratio(ledger.in_innings.before(1 - ledger.legal), ledger.deliveries),
        "era": (np.array([_year(match.date) for match in book.matches])[book.match] - _ERA_BEGINS) / 20,
    }


def _chase(ledger: Ledger) -> dict[str, np.ndarray]:
    chase = ledger.target > 0
    needed = np.maximum(ledger.target - ledger.runs, 0)
    rate = required_rate(ledger)
    return {
        "needed": np.where(chase, needed / 250, 0),
        "required_rate": rate / 20,
        "is_chase": chase,
        "rate": np.where(chase, run_rate(ledger) / 12, 0),
        "difficulty": np.where(chase, np.searchsorted([6.0, 8.0, 10.0, 12.0], rate, side="right") / 4, 0),
        "balls_left": np.where(chase, ledger.balls_left / 120, 1),
        "wickets_left": np.where(chase, (10 - ledger.wickets) / 10, 1),
        "ahead": np.where(chase, np.clip((run_rate(ledger) - rate) / 12, -2, 1), 0),
        "target": ledger.target / 250,
        **{f"first_{name}": column for name, column in _first_innings(ledger).items()},
    }


def _first_innings(ledger: Ledger) -> dict[str, np.ndarray]:
    """How the other side fared on the same ground, seen from the chase; 0 in the first innings."""
    innings = ledger.book.innings_of

    def of_other_side(events: np.ndarray) -> np.ndarray:
        totals = np.bincount(innings, events, len(ledger.book.innings))
        return np.where(ledger.chasing, totals[np.maximum(innings - 1, 0)], 0)

    balls = of_other_side(ledger.legal)
    return {
        "dots": ratio(of_other_side(ledger.dot), balls),
        "fours": ratio(of_other_side(ledger.label == 4), balls),
        "sixes": ratio(of_other_side(ledger.label == 5), balls),
        "wickets": of_other_side(ledger.book["wickets"]) / 10,
        "balls": balls / 120,
    }


def _phase(ledger: Ledger) -> dict[str, np.ndarray]:
    book, phase = ledger.book, progress_phase(ledger)
    restricted = book["powerplay"] > 0
    legal_in_over = ledger.in_over.before(ledger.legal)
    return {
        "powerplay": phase == 0,
        "middle": phase == 1,
        "death": phase == 2,
        "ball_in_over": ledger.deliveries % 6 / 6,
        "first_ball": ledger.deliveries % 6 == 0,
        "super_over": ledger.super_over,
        "over": book["over"] / 20,
        "legal_in_over": np.minimum(legal_in_over, 6) / 6,
        "last_of_over": legal_in_over >= 5,
        "restricted": restricted,
        # Once the restrictions have ended, their length tells how long a match shortened by rain will be.
        "restricted_balls": np.where(restricted, 0, ledger.in_innings.before(book["powerplay"]) / 36),
        "free_hit": ledger.free_hit,
        "over_runs": ledger.in_over.before(book["total_runs"]) / 12,
        "over_wickets": ledger.in_over.before(book["wickets"]),
        "over_boundaries": ledger.in_over.before(ledger.boundary) / 2,
    }


def _time(ledger: Ledger) -> dict[str, np.ndarray]:
    return {
        "balls_left": ledger.balls_left / 120,
        "urgency": np.where(ledger.target > 0, np.clip((required_rate(ledger) - 8) / 12, 0, 1), 0),
        "final_over": ledger.balls_left <= 6,
        "balls_per_wicket": ledger.balls_left / np.maximum(10 - ledger.wickets, 1) / 60,
    }


def _year(day: str) -> float:
    """A date as a year with its fraction."""
    return date.fromisoformat(day).toordinal() / 365.2425 if day else _MIDDLE_OF_TIMES
