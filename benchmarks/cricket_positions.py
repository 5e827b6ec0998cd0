"""Matches after some overs, and what simple rules make of them: the baselines of cricket_calibration.py."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.live.situation import NotForecast, Situation, situation
from lockstep.workloads.cricket.matches.match import Match, Row

BALLS = 120


@dataclass(frozen=True)
class Position:
    """A match after some overs of an innings, and how it went on; the chase's view."""

    over: int
    innings: int
    runs: int
    wickets: int
    target: int
    final: int
    won: float
    """1 if the side that bats second won, 0.5 after a tie."""

    @property
    def needed(self) -> float:
        """Runs that the chase needs; in the first innings, minus the runs made."""
        return self.target - self.runs if self.innings else -self.runs

    @property
    def rate(self) -> float:
        """Required rate; in the first innings, minus the run rate."""
        return self.needed / max(BALLS / 6 - self.over, 1) if self.innings else self.needed / self.over


def innings_of(match: Match, number: int) -> np.ndarray:
    return match.rows[match.rows[:, 0] == number]


def column(rows: np.ndarray, name: str) -> np.ndarray:
    return rows[:, Row._fields.index(name)].astype(int)


def cut(match: Match, number: int, over: int) -> tuple[Match, Situation] | None:
    """The match after so many overs of an innings; None if it ended before."""
    rows = innings_of(match, number)
    legal = np.cumsum((column(rows, "wides") == 0) & (column(rows, "noballs") == 0))
    if legal[-1] <= over * 6:
        return None
    kept = int(np.searchsorted(legal, over * 6)) + 1
    every = np.concatenate([match.rows[match.rows[:, 0] < number], rows[:kept]])
    shorter = replace(match, rows=every, innings=match.innings[: number + 1], players=dict(match.players))
    at = situation(shorter)
    return (shorter, at) if at.innings == number and not at.revised and at.allotted == BALLS else None


def has_result(match: Match) -> bool:
    """Whether the match has a result of two whole innings."""
    if len(match.innings) < 2 or match.innings[1].target_overs != 20:
        return False
    try:
        situation(replace(match, innings=match.innings[:2], rows=match.rows[match.rows[:, 0] < 2]))
    except NotForecast as reason:
        return "over" in str(reason)
    return False


def position(match: Match, at: Situation, over: int) -> Position:
    totals = [int(column(innings_of(match, number), "total_runs").sum()) for number in (0, 1)]
    target = totals[0] + match.innings[0].penalty_runs + 1
    won = 1.0 if totals[1] >= target else 0.5 if totals[1] == target - 1 else 0.0
    return Position(over, at.innings, at.runs, at.wickets, at.target, totals[at.innings], won)


def of_table(table: DeliveryTable, overs: list[int]) -> Iterator[Position]:
    """The same positions of the training matches, for the baselines."""
    score, total = table.score.numpy().astype(int), table.runs.numpy()[:, 1].astype(int)
    match, innings, first = table.match.numpy(), table.innings.numpy(), table.first.numpy()
    last = np.append(np.flatnonzero(np.diff(first)), len(first) - 1)
    final = {(match[row], innings[row]): score[row, 0] + total[row] for row in last}
    for row in np.flatnonzero(np.isin(score[:, 2], [6 * over for over in overs]) & (innings < 2)):
        one, other = final.get((match[row], 0)), final.get((match[row], 1))
        if one is None or other is None or (row > first[row] and score[row - 1, 2] == score[row, 2]):
            continue
        won = 1.0 if other > one else 0.5 if other == one else 0.0
        runs, wickets, legal, target = score[row].tolist()
        yield Position(legal // 6, int(innings[row]), runs, wickets, target, final[match[row], innings[row]], won)


class Logistic:
    """A logistic curve of one number or several, fitted by Newton's method."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        """x: (N,) or (N, features)."""
        x = x.reshape(len(y), -1)
        self.scale = np.abs(x).mean(0).clip(min=1e-6)
        design = np.concatenate([np.ones((len(x), 1)), x / self.scale], 1)
        self.weights = np.zeros(design.shape[1])
        for _ in range(30):
            p = 1 / (1 + np.exp(-design @ self.weights))
            slope = design.T @ (y - p) - 1e-3 * self.weights
            curvature = design.T @ (design * (p * (1 - p))[:, None]) + 1e-3 * np.eye(len(slope))
            self.weights += np.linalg.solve(curvature, slope)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The probabilities at x: (N,) or (N, features)."""
        x = np.asarray(x, float).reshape(-1, len(self.scale))
        return 1 / (1 + np.exp(-(self.weights[0] + x / self.scale @ self.weights[1:])))


class Baselines:
    """Both baselines, by innings and over."""

    def __init__(self, positions: list[Position]) -> None:
        self.rest: dict[tuple[int, int], float] = {}
        by_over = {
            over: [p for p in positions if p.over == over and not p.innings] for over in {p.over for p in positions}
        }
        for over, those in by_over.items():
            average = float(np.mean([p.final - p.runs for p in those]))
            for wickets in range(11):
                rest = [p.final - p.runs for p in those if p.wickets == wickets]
                # Ten average innings for each cell, so that rare ones stay near the average.
                self.rest[over, wickets] = (sum(rest) + 10 * average) / (len(rest) + 10)
        self.curves = {}
        for innings, over in {(p.innings, p.over) for p in positions}:
            those = [p for p in positions if (p.innings, p.over) == (innings, over)]
            won = np.array([p.won for p in those])
            self.curves[innings, over] = (
                Logistic(np.array([p.rate for p in those]), won),
                Logistic(np.array([self.beyond(p) for p in those]), won),
            )

    def beyond(self, p: Position) -> float:
        """Runs wanted beyond what balls and wickets left usually bring."""
        rest = self.rest[p.over, min(p.wickets, 10)]
        return p.needed - rest

    def wins(self, p: Position) -> list[float]:
        """Probability that the chase wins, by both."""
        rate, resources = self.curves[p.innings, p.over]
        return [float(rate(p.rate)[0]), float(resources(self.beyond(p))[0])]

    def scores(self, p: Position) -> list[float]:
        """The final score at the rate so far, and with what is usually made from here."""
        return [p.runs * 20 / p.over, p.runs + self.rest[p.over, min(p.wickets, 10)]]
