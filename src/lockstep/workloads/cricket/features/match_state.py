"""The state of the match before each delivery: score, chase, phase, time and wickets.

Divisors bring features to a range of about 0 to 1. Those of the original program's features are its own.
"""

from datetime import date

import numpy as np

from lockstep.workloads.cricket.features.running_sums import ratio
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.table import DEATH_OVER, POWERPLAY_OVERS

_ERA_BEGINS = 2005.0
"""The year of the first T20 international."""
_DEFAULT_YEAR = 2018.0
"""Assumed for a match without a date."""


def match_state(scoreboard: Scoreboard) -> dict[str, dict[str, np.ndarray]]:
    """Features by node type and name, (N,) each."""
    return {
        "score_state": _score(scoreboard),
        "chase_state": _chase(scoreboard),
        "phase_state": _phase(scoreboard),
        "time_pressure": _time(scoreboard),
        "wicket_buffer": {"in_hand": (10 - scoreboard.wickets) / 10, "tail": scoreboard.wickets > 7},
    }


def required_rate(scoreboard: Scoreboard) -> np.ndarray:
    """Runs an over that the chase needs, at most 36 (six sixes); 0 in the first innings."""
    needed = np.maximum(scoreboard.target - scoreboard.runs, 0)
    return np.where(scoreboard.target > 0, np.minimum(ratio(needed * 6, scoreboard.balls_left, 36.0), 36.0), 0.0)


def run_rate(scoreboard: Scoreboard) -> np.ndarray:
    """Runs an over so far."""
    return ratio(scoreboard.runs * 6, scoreboard.legal_balls)


def progress_phase(scoreboard: Scoreboard) -> np.ndarray:
    """0 powerplay, 1 middle, 2 death, by the deliveries so far, extras included, as in the original program."""
    overs = scoreboard.deliveries // 6
    return (overs >= POWERPLAY_OVERS).astype(np.int64) + (overs >= DEATH_OVER)


def _score(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    balls = scoreboard.legal_balls
    return {
        "runs": scoreboard.runs / 250,
        "wickets": scoreboard.wickets / 10,
        "legal_balls": balls / 120,
        "second_innings": scoreboard.current("innings") == 1,
        "women": scoreboard.of_match(lambda match: match.female, bool),
        "rate": np.minimum(run_rate(scoreboard), 36) / 12,
        "boundary_share": ratio(scoreboard.in_innings.before(scoreboard.boundary), balls),
        "dot_share": ratio(scoreboard.in_innings.before(scoreboard.dot), balls),
        "extras_share": ratio(scoreboard.in_innings.before(1 - scoreboard.legal), scoreboard.deliveries),
        "era": (scoreboard.of_match(lambda match: _year(match.date), float) - _ERA_BEGINS) / 20,
    }


def _chase(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    chase = scoreboard.target > 0
    needed = np.maximum(scoreboard.target - scoreboard.runs, 0)
    rate = required_rate(scoreboard)
    return {
        "needed": np.where(chase, needed / 250, 0),
        "required_rate": rate / 20,
        "is_chase": chase,
        "rate": np.where(chase, run_rate(scoreboard) / 12, 0),
        "difficulty": np.where(chase, np.searchsorted([6.0, 8.0, 10.0, 12.0], rate, side="right") / 4, 0),
        "balls_left": np.where(chase, scoreboard.balls_left / 120, 1),
        "wickets_left": np.where(chase, (10 - scoreboard.wickets) / 10, 1),
        "ahead": np.where(chase, np.clip((run_rate(scoreboard) - rate) / 12, -2, 1), 0),
        "target": scoreboard.target / 250,
        **{f"first_{name}": column for name, column in _first_innings(scoreboard).items()},
    }


def _first_innings(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    """How the first innings went, as a feature of the chase on the same pitch; 0 in the first innings itself."""
    of_other_side = scoreboard.of_other_side
    balls = of_other_side(lambda board: board.legal)
    return {
        "dots": ratio(of_other_side(lambda board: board.dot), balls),
        "fours": ratio(of_other_side(lambda board: board.label == 4), balls),
        "sixes": ratio(of_other_side(lambda board: board.label == 5), balls),
        "wickets": of_other_side(lambda board: board.book["wickets"]) / 10,
        "balls": balls / 120,
    }


def _phase(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    book, phase = scoreboard.book, progress_phase(scoreboard)
    restricted = scoreboard.current("powerplay") > 0
    legal_in_over = scoreboard.in_over.before(scoreboard.legal)
    return {
        "powerplay": phase == 0,
        "middle": phase == 1,
        "death": phase == 2,
        "ball_in_over": scoreboard.deliveries % 6 / 6,
        "first_ball": scoreboard.deliveries % 6 == 0,
        "super_over": scoreboard.super_over,
        "over": scoreboard.current("over") / 20,
        "legal_in_over": np.minimum(legal_in_over, 6) / 6,
        "last_of_over": legal_in_over >= 5,
        "restricted": restricted,
        # Once the restrictions have ended, their length tells how long a match shortened by rain will be.
        "restricted_balls": np.where(restricted, 0, scoreboard.in_innings.before(book["powerplay"]) / 36),
        "free_hit": scoreboard.free_hit,
        "over_runs": scoreboard.in_over.before(book["total_runs"]) / 12,
        "over_wickets": scoreboard.in_over.before(book["wickets"]),
        "over_boundaries": scoreboard.in_over.before(scoreboard.boundary) / 2,
    }


def _time(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    return {
        "balls_left": scoreboard.balls_left / 120,
        "urgency": np.where(scoreboard.target > 0, np.clip((required_rate(scoreboard) - 8) / 12, 0, 1), 0),
        "final_over": scoreboard.balls_left <= 6,
        "balls_per_wicket": scoreboard.balls_left / np.maximum(10 - scoreboard.wickets, 1) / 60,
    }


def _year(day: str) -> float:
    """A date as a fractional year."""
    return date.fromisoformat(day).toordinal() / 365.2425 if day else _DEFAULT_YEAR
