"""The names and order of the table's columns, by the node type of the graph that they describe."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

OUTCOMES = ("dot", "single", "two", "three", "four", "six", "wicket")
"""The classes, in the order of their labels."""
OUTCOME_RUNS = (0, 1, 2, 3, 4, 6, 0)
"""What the batter scores by each outcome."""
PHASES = ("powerplay", "middle", "death")
"""Overs 1-6, 7-16 and 17-20."""
ROLES = ("unknown", "opener", "top_order", "middle_order", "finisher", "bowler", "allrounder", "keeper")
"""What a player mostly does for the team; a row's number is an index into these."""
ENTITIES = ("venue", "batting_team", "bowling_team", "striker", "nonstriker", "bowler")
"""The columns of `ids`."""
BALL_PEOPLE = ("bowler", "batter", "nonstriker")
"""The columns of `ball_ids` and `people`."""

BALL_FEATURES = (
    *("runs", "wicket", "over", "ball_in_over", "boundary", "wide", "noball", "bye", "legbye", "bowled", "caught"),
    *("lbw", "run_out", "stumped", "other_wicket", "striker_run_out", "nonstriker_run_out", "over_parity"),
)
"""What an earlier delivery tells."""

_BATTER = (*("runs", "balls", "strike_rate", "dot_share", "is_set", "boundaries", "not_yet_faced", "since_last_faced"),)

STATE_FEATURES: Mapping[str, tuple[str, ...]] = {
    "score_state": ("runs", "wickets", "legal_balls", "second_innings", "women"),
    "chase_state": ("needed", "required_rate", "is_chase", "rate", "difficulty", "balls_left", "wickets_left"),
    "phase_state": ("powerplay", "middle", "death", "ball_in_over", "first_ball", "super_over"),
    "time_pressure": ("balls_left", "urgency", "final_over"),
    "wicket_buffer": ("in_hand", "tail"),
    "striker_state": _BATTER,
    "nonstriker_state": _BATTER,
    "bowler_state": ("balls", "runs", "wickets", "economy", "dot_share", "threat", "pace", "spin"),
    "partnership": ("runs", "balls", "rate", "stability"),
    "batting_momentum": ("momentum",),
    "bowling_momentum": ("momentum",),
    "pressure_index": ("pressure",),
    "dot_pressure": ("dots", "since_boundary", "since_wicket", "weighted", "trend"),
}
"""What is known before a delivery, by node type."""

_RATES = tuple(f"rate_{outcome}" for outcome in OUTCOMES)

CAREER_FEATURES: Mapping[str, tuple[str, ...]] = {
    "venue": (*_RATES, "log_balls"),
    "batting_team": (*_RATES, "log_balls"),
    "bowling_team": (*_RATES, "log_balls"),
    "striker_identity": (*_RATES, "log_balls"),
    "nonstriker_identity": (*_RATES, "log_balls"),
    "bowler_identity": (*_RATES, "log_balls"),
}
"""What the training matches tell about the entities of a delivery, by node type."""


class Columns(NamedTuple):
    """Where the columns of each node type lie, and how many there are in all."""

    slices: Mapping[str, slice]
    width: int


def lay_out(features: Mapping[str, Iterable[str]]) -> Columns:
    """Give each node type its columns, one node type after the other."""
    slices, start = {}, 0
    for node, names in features.items():
        stop = start + len(tuple(names))
        slices[node] = slice(start, stop)
        start = stop
    return Columns(slices, start)


STATE_COLUMNS, STATE_WIDTH = lay_out(STATE_FEATURES)
CAREER_COLUMNS, CAREER_WIDTH = lay_out(CAREER_FEATURES)
