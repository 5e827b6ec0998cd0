"""The graph of one delivery: its nodes and relations. Nothing here needs torch.

Nineteen context nodes in four groups (one node of each type), the earlier balls of the innings, and the query, whose
vector becomes the prediction. Edges are triples (source, relation, target).
"""

from collections.abc import Collection, Iterable
from itertools import pairwise

from lockstep.config.fields import nearest
from lockstep.errors import UserError

GROUPS: dict[str, tuple[str, ...]] = {
    "global": ("venue", "batting_team", "bowling_team"),
    "state": ("score_state", "chase_state", "phase_state", "time_pressure", "wicket_buffer"),
    "actor": (
        *("striker_identity", "striker_state", "nonstriker_identity", "nonstriker_state"),
        *("bowler_identity", "bowler_state", "partnership"),
    ),
    "dynamics": ("batting_momentum", "bowling_momentum", "pressure_index", "dot_pressure"),
}
"""Context nodes, from slowly to quickly changing; each group conditions the next."""
CONTEXT = tuple(node for nodes in GROUPS.values() for node in nodes)
"""All context nodes, in the order of the context tensor."""

_RELATED = (
    *(("venue", "batting_team"), ("venue", "bowling_team"), ("batting_team", "bowling_team")),
    *(("score_state", other) for other in ("chase_state", "phase_state", "time_pressure", "wicket_buffer")),
    *(("chase_state", "time_pressure"), ("phase_state", "time_pressure"), ("time_pressure", "wicket_buffer")),
    *(("batting_momentum", "bowling_momentum"), ("batting_momentum", "pressure_index")),
    *(("bowling_momentum", "pressure_index"), ("pressure_index", "dot_pressure")),
)
_MATCHED = (
    *(("striker_identity", "striker_state"), ("nonstriker_identity", "nonstriker_state")),
    *(("bowler_identity", "bowler_state"), ("striker_identity", "bowler_identity")),
    *(("nonstriker_identity", "bowler_identity"), ("striker_identity", "nonstriker_identity")),
    *((actor, "partnership") for actor in ("striker_state", "nonstriker_state", "bowler_state")),
    *((actor, "partnership") for actor in ("striker_identity", "nonstriker_identity")),
)

CONTEXT_RELATIONS = ("conditions", "relates_to", "matchup")
"""Between context nodes; GATv2."""
BALL_RELATIONS = ("recent_precedes", "medium_precedes", "same_bowler", "same_batsman", "same_over")
"""Between balls, with one feature per edge; TransformerConv."""
OTHER_BALL_RELATIONS = ("distant_precedes", "same_matchup")
"""Between balls: SAGE with a mean, and GATv2."""
PLAYER_RELATIONS = {
    "faced_by": "striker_identity",
    "partnered_by": "nonstriker_identity",
    "bowled_by": "bowler_identity",
}
"""From balls to the current players; GATv2."""
QUERY_RELATIONS = ("attends", "drives")
"""To the query, from everything and from the dynamics; GATv2."""
RELATIONS = (
    *CONTEXT_RELATIONS,
    *BALL_RELATIONS,
    *OTHER_BALL_RELATIONS,
    *PLAYER_RELATIONS,
    "informs",
    *QUERY_RELATIONS,
)
"""All sixteen; `informs` goes from the last balls to the dynamics."""
FED_BY_BALLS = (*PLAYER_RELATIONS, "informs", "attends")
"""Relations through which balls reach the prediction."""

RECENT_GAP, MEDIUM_GAP, DISTANT_STEP = 6, 24, 6
"""Gaps between balls: recent up to the first, medium up to the second, distant beyond it in whole steps."""
INFORMING_BALLS = 12
"""How many of the most recent balls inform the dynamics."""
MATCHUP_BALLS = 16
"""How many earlier balls of its own matchup a ball reads: a fixed window is fast, and one ball in 2,000 has more."""
SCALES = {"recent_precedes": 6.0, "medium_precedes": 18.0, "same_bowler": 24.0, "same_batsman": 60.0, "same_over": 5.0}
"""Divisor of the edge feature: the gap (for medium, beyond 6), or for same_over the newer ball's place in the over."""


def context_pairs() -> list[tuple[str, str, str]]:
    """Every (source, relation, target) between context nodes."""
    groups = list(GROUPS.values())
    down = [(source, "conditions", target) for above, below in pairwise(groups) for source in above for target in below]
    across = [(one, "relates_to", other) for one, other in both_ways(_RELATED)]
    return down + across + [(one, "matchup", other) for one, other in both_ways(_MATCHED)]


def both_ways(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each pair and its reverse."""
    return [edge for one, other in pairs for edge in ((one, other), (other, one))]


def all_triples() -> list[tuple[str, str, str]]:
    """Every (source, relation, target) of the whole graph."""
    dynamics = GROUPS["dynamics"]
    return [
        *context_pairs(),
        *(("ball", relation, "ball") for relation in (*BALL_RELATIONS, *OTHER_BALL_RELATIONS)),
        *(("ball", relation, player) for relation, player in PLAYER_RELATIONS.items()),
        *(("ball", "informs", node) for node in dynamics),
        *((node, "attends", "query") for node in (*CONTEXT, "ball")),
        *((node, "drives", "query") for node in dynamics),
    ]


def kept_relations(dropped: str) -> frozenset[str]:
    """The relations left after dropping those of a list such as 'drives,matchup'; `ball` drops all from balls."""
    names = [name.strip() for name in dropped.split(",") if name.strip()]
    known = (*RELATIONS, "ball")
    for name in names:
        if name not in known:
            near = nearest(name, list(known))
            hint = f"the nearest is {near}" if near else f"relations are {', '.join(RELATIONS)}"
            raise UserError(f"drop_relations {name!r}: no such relation; {hint}")
    kept = frozenset(known) - frozenset(names)
    if not kept & set(QUERY_RELATIONS):
        raise UserError("drop_relations: without attends and drives nothing reaches the prediction; keep one of them")
    return kept


def reads_balls(kept: Collection[str]) -> bool:
    """Whether earlier balls reach the prediction at all."""
    return "ball" in kept and any(relation in kept for relation in FED_BY_BALLS)
