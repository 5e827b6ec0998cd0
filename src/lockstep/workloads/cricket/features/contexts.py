"""The circumstances of a delivery, discretised into cells for counting and for the additive model."""

import numpy as np

from lockstep.workloads.cricket.features.match_state import required_rate
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.table import DEATH_OVER, POWERPLAY_OVERS
from lockstep.workloads.cricket.matches.match import OVERS

_FACED = (1, 3, 6, 11, 21, 36)
"""Where the next cell of balls faced starts; finer at first, when a batter changes most."""
_RATES = (4.0, 6.0, 7.5, 9.0, 11.0, 14.0, 20.0)
"""Where the next cell of the required rate starts, in runs an over."""
_FIRST_YEAR, _YEARS = 2003, 40
"""Years with a cell of their own; T20 cricket started in 2003."""
Cells = dict[str, tuple[np.ndarray, int]]
"""Name -> the cell of each delivery, and how many cells there are."""


def phase_of_over(scoreboard: Scoreboard) -> np.ndarray:
    """0 powerplay, 1 middle, 2 death."""
    return np.searchsorted([POWERPLAY_OVERS, DEATH_OVER], scoreboard.current("over"), side="right")


def over_cells(scoreboard: Scoreboard) -> tuple[np.ndarray, int]:
    """Over, wickets down and which innings."""
    over, wickets = scoreboard.current("over"), np.minimum(scoreboard.wickets, 10)
    return (over * 11 + wickets) * 2 + scoreboard.chasing, OVERS * 11 * 2


def contexts(scoreboard: Scoreboard) -> Cells:
    """What an outcome depends on besides players, teams and venue; most cells are combined with the phase."""
    phase = phase_of_over(scoreboard)
    faced = scoreboard.by_player("batter").before(scoreboard.faced)
    # Cell 0 is the first innings, which has no required rate.
    rate = np.where(scoreboard.target > 0, 1 + np.searchsorted(_RATES, required_rate(scoreboard), side="right"), 0)
    striker, _ = scoreboard.batting_positions
    ball = np.minimum(scoreboard.in_over.before(scoreboard.legal), 6)
    years = scoreboard.of_match(lambda match: int(match.date[:4] or 0), np.int64)
    return {
        "over": over_cells(scoreboard),
        "restrictions": (scoreboard.current("over") * 2 + (scoreboard.current("powerplay") > 0), OVERS * 2),
        "faced": (np.searchsorted(_FACED, faced, side="right") * 3 + phase, (len(_FACED) + 1) * 3),
        "position": (np.minimum(striker, 11) * 3 + phase, 36),
        "required": (rate * 3 + phase, (len(_RATES) + 2) * 3),
        "ball": (ball * 3 + phase, 21),
        "free_hit": (scoreboard.free_hit.astype(np.int64), 2),
        "year": (np.clip(years - _FIRST_YEAR, 0, _YEARS - 1), _YEARS),
    }
