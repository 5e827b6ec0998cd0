"""What else happens with an outcome: wides, no-balls, byes and ways of getting out, as often as in training matches.

A network predicts the batter's runs or a wicket. A dot may also be a wide, and a wicket a run out of the other batter:
these are drawn from the training deliveries with the same outcome in the same phase of an innings.
"""

from dataclasses import dataclass

import numpy as np

from lockstep.compute.device_array import look_up
from lockstep.workloads.cricket.columns import BALL_FEATURES, OUTCOMES, PHASES
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.matches.match import KINDS

_FLAGS = ("wide", "noball", "bye", "legbye", "bowled", "caught", "lbw", "run_out", "stumped", "other_wicket")
_SHAPES = len(OUTCOMES) * len(PHASES)


@dataclass(frozen=True)
class DeliveryKinds:
    """Every kind of delivery that training matches have, and how often by outcome and phase. K: kinds."""

    columns: dict[str, np.ndarray]
    """Field of Row -> (K,); `player_out` is 1 for the non-striker, else 0."""
    shares: np.ndarray
    """(7 * 3, K): running sums of the kinds' probabilities, for each outcome and phase."""

    @staticmethod
    def of(table: DeliveryTable) -> "DeliveryKinds":
        """The kinds of a table's deliveries."""
        ball = table.ball.numpy()
        flag = {name: ball[:, BALL_FEATURES.index(name)] > 0 for name in (*_FLAGS, "nonstriker_run_out", "boundary")}
        batter, total = table.runs.numpy().astype(np.int64).T
        kind = np.zeros(len(table), np.int64)
        for name in ("bowled", "caught", "lbw", "stumped", "run_out", "other_wicket"):
            kind[flag[name]] = KINDS.index({"run_out": "run out", "other_wicket": "other"}.get(name, name))
        rows = np.stack(
            [
                *(batter, total, kind),
                *(flag[name].astype(np.int64) for name in ("wide", "noball", "bye", "legbye", "nonstriker_run_out")),
                (batter >= 4) & ~flag["boundary"],
            ],
            1,
        )
        # Sorted as one number each, in base 128, which is much faster than sorting rows.
        _, place, number = np.unique(rows @ (128 ** np.arange(rows.shape[1])), return_index=True, return_inverse=True)
        found = rows[place]
        cell = table.label.numpy() * len(PHASES) + table.phase().numpy()
        counts = np.bincount(cell * len(found) + number.reshape(-1), minlength=_SHAPES * len(found))
        counts = counts.reshape(_SHAPES, len(found)).astype(np.float64)
        return DeliveryKinds(_columns(found), _running_shares(counts))

    def draw(self, outcome: np.ndarray, phase: np.ndarray, uniform: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of Row (B,) of deliveries with these outcomes; `uniform`: (B,) in [0, 1)."""
        shares = look_up(self.shares, outcome * len(PHASES) + phase)
        number = (shares <= uniform[:, None]).sum(1)
        return {name: look_up(column, number) for name, column in self.columns.items()}


def _columns(found: np.ndarray) -> dict[str, np.ndarray]:
    batter, total, kind, wide, noball, bye, legbye, nonstriker_out, ran_all = found.T
    extras = total - batter
    # A wide's extras are all wides; what a no-ball brings beyond one run are byes or leg byes.
    beyond = np.where(wide > 0, 0, extras - noball)
    return {
        "batter_runs": batter,
        "total_runs": total,
        "wides": np.where(wide > 0, extras, 0),
        "noballs": noball,
        "byes": np.where(bye > 0, beyond, 0),
        "legbyes": np.where(legbye > 0, beyond, 0),
        "kind": kind,
        "wickets": (kind > 0).astype(np.int64),
        "player_out": nonstriker_out,
        "ran_all": ran_all,
    }


def _running_shares(counts: np.ndarray) -> np.ndarray:
    """Running sums of each row's shares; a row without any delivery takes those of its outcome in all phases."""
    by_outcome = counts.reshape(len(OUTCOMES), len(PHASES), -1).sum(1).repeat(len(PHASES), 0)
    counts = np.where(counts.sum(1, keepdims=True) > 0, counts, by_outcome)
    running = counts.cumsum(1)
    # The last possible kind ends at 1, so that no number below 1 falls beyond it.
    return running / np.maximum(running[:, -1:], 1)
