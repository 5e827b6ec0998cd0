"""The 18 features of a delivery as part of later deliveries' history."""

import numpy as np

from lockstep.workloads.cricket.columns import BALL_FEATURES
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.matches.match import KINDS


def ball_features(scoreboard: Scoreboard) -> np.ndarray:
    """(N, 18) float16: BALL_FEATURES of every delivery; with a first axis more for several games at once."""
    book, kind = scoreboard.book, scoreboard.book["kind"]
    run_out = kind == KINDS.index("run out")
    dismissals = {name: kind == KINDS.index(name) for name in ("bowled", "caught", "lbw", "stumped")}
    columns = {
        "runs": book["total_runs"] / 6,
        "wicket": kind > 0,
        "over": book["over"] / 20,
        "ball_in_over": book["ball_in_over"] / 6,
        "boundary": scoreboard.boundary,
        "wide": book["wides"] > 0,
        "noball": book["noballs"] > 0,
        "bye": book["byes"] > 0,
        "legbye": book["legbyes"] > 0,
        **dismissals,
        "run_out": run_out,
        "other_wicket": kind >= KINDS.index("other"),
        "striker_run_out": run_out & (book["player_out"] == book["batter"]),
        "nonstriker_run_out": run_out & (book["player_out"] == book["nonstriker"]),
        # Which end the ball was bowled from: ends alternate with overs.
        "over_parity": book["over"] % 2,
    }
    result = np.zeros((*kind.shape, len(BALL_FEATURES)), np.float16, like=kind)
    for place, name in enumerate(BALL_FEATURES):
        result[..., place] = columns[name]
    return result
