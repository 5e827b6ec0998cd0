"""The names and order of the table's columns, by the node type of the graph that they describe."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

OUTCOMES = ("dot", "single", "two", "three", "four", "six", "wicket")
"""The classes, in the order of their labels."""
OUTCOME_RUNS = (0, 1, 2, 3, 4, 6, 0)
"""Runs the batter scores with each outcome."""
PHASES = ("powerplay", "middle", "death")
"""Overs 1-6, 7-16 and 17-20."""
ROLES = ("unknown", "opener", "top_order", "middle_order", "finisher", "bowler", "allrounder", "keeper")
"""A player's main role in the team; tables store indices into these."""
ENTITIES = ("venue", "batting_team", "bowling_team", "striker", "nonstriker", "bowler")
"""The columns of `ids`."""
BALL_PEOPLE = ("bowler", "batter", "nonstriker")
"""The columns of `ball_ids` and `people`."""

BALL_FEATURES = (
    *("runs", "wicket", "over", "ball_in_over", "boundary", "wide", "noball", "bye", "legbye", "bowled", "caught"),
    *("lbw", "run_out", "stumped", "other_wicket", "striker_run_out", "nonstriker_run_out", "over_parity"),
)
"""Features of an earlier delivery, as part of the history."""

_BATTER = (
    *("runs", "balls", "strike_rate", "dot_share", "is_set", "boundaries", "not_yet_faced", "since_last_faced"),
    *("position", "entry", "log_balls", "single_share", "two_share", "four_share", "six_share"),
    *("recent_runs", "recent_balls", "since_scored", "average_pace"),
)


def _each(prefix: str) -> tuple[str, ...]:
    """One column for each outcome."""
    return tuple(f"{prefix}_{outcome}" for outcome in OUTCOMES)


STATE_FEATURES: Mapping[str, tuple[str, ...]] = {
    "score_state": (
        *("runs", "wickets", "legal_balls", "second_innings", "women"),
        *("rate", "boundary_share", "dot_share", "extras_share", "era"),
        *(*_each("prior"), *_each("match_today"), *_each("innings_today")),
    ),
    "chase_state": (
        *("needed", "required_rate", "is_chase", "rate", "difficulty", "balls_left", "wickets_left"),
        *("ahead", "target", "first_dots", "first_fours", "first_sixes", "first_wickets", "first_balls"),
    ),
    "phase_state": (
        *("powerplay", "middle", "death", "ball_in_over", "first_ball", "super_over"),
        *("over", "legal_in_over", "last_of_over", "restricted", "restricted_balls", "free_hit"),
        *("over_runs", "over_wickets", "over_boundaries"),
    ),
    "time_pressure": ("balls_left", "urgency", "final_over", "balls_per_wicket"),
    "wicket_buffer": ("in_hand", "tail"),
    "striker_state": (*_BATTER, *_each("today")),
    "nonstriker_state": _BATTER,
    "bowler_state": (
        *("balls", "runs", "wickets", "economy", "dot_share", "threat", "pace", "spin"),
        *("first_ball", "single_share", "four_share", "six_share", "wide_share", "last_over_runs"),
        *("last_over_wickets", "duel_balls", "duel_runs", "duel_dot_share"),
        *_each("today"),
    ),
    "partnership": ("runs", "balls", "rate", "stability"),
    "batting_momentum": ("momentum",),
    "bowling_momentum": ("momentum",),
    "pressure_index": ("pressure",),
    "dot_pressure": ("dots", "since_boundary", "since_wicket", "weighted", "trend"),
}
"""Features known before a delivery, by node type; `today`: deviation from what careers predict, so far in the match."""

_CAREER = ("log_balls", *_each("rate"), *_each("skill"))

CAREER_FEATURES: Mapping[str, tuple[str, ...]] = {
    "venue": _CAREER,
    "batting_team": _CAREER,
    "bowling_team": _CAREER,
    "striker_identity": (*_CAREER, *_each("phase_skill"), *_each("type_skill")),
    "nonstriker_identity": _CAREER,
    "bowler_identity": (*_CAREER, *_each("phase_skill")),
}
"""Features of a delivery's entities, learned from the training matches, by node type.

log_balls: log of one plus the known deliveries; rate: log ratio of each outcome's frequency to the average, shrunk;
skill: the same in log-odds, for the year of the match, adjusted for everything else (see skills.py); phase_skill and
type_skill: what this phase of the innings and this type of bowling add to it.
"""


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
PRIOR_COLUMNS = slice(
    STATE_COLUMNS["score_state"].start + STATE_FEATURES["score_state"].index("prior_dot"),
    STATE_COLUMNS["score_state"].start + STATE_FEATURES["score_state"].index("prior_wicket") + 1,
)
"""Columns of `state` that hold an additive model's log-probabilities of the outcomes."""
