"""How good win probabilities and scores of matches played out are: `python benchmarks/cricket_calibration.py RUN`.

Cuts unseen matches of the run's own split off after some overs, plays each out with `lockstep predict`'s simulation,
and compares with two baselines that are fitted on the training matches: a logistic curve of the required rate (first
innings: of the run rate), and one of the runs wanted beyond those that the balls and wickets left usually bring. Prints
log loss, Brier score and errors of the score, and draws reliability.png. Matches with a revised target, fewer overs or
no result are left out. Positions that --output has from an earlier call are kept and not played again.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lockstep.cli import model as models
from lockstep.cli.model import ModelOptions
from lockstep.distributed.world import World
from lockstep.workloads.capabilities import ForecastRequest
from lockstep.workloads.cricket.data.preparation import open_store, read_matches
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.live.forecaster import MatchForecaster
from lockstep.workloads.cricket.live.situation import NotForecast, Situation, situation
from lockstep.workloads.cricket.matches.match import Match, Row
from lockstep.workloads.cricket.matches.split import check_source

BALLS = 120
LEAST = 30
"""Positions that an innings needs to be drawn."""
NAMES = ("model", "required rate", "resources left")


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


def finished(match: Match) -> bool:
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
    """A logistic curve of one number, fitted by Newton's method."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.scale = max(float(np.abs(x).mean()), 1e-6)
        design, self.weights = np.stack([np.ones(len(x)), x / self.scale], 1), np.zeros(2)
        for _ in range(30):
            p = 1 / (1 + np.exp(-design @ self.weights))
            slope = design.T @ (y - p) - 1e-3 * self.weights
            self.weights += np.linalg.solve(design.T @ (design * (p * (1 - p))[:, None]) + 1e-3 * np.eye(2), slope)

    def __call__(self, x: float) -> float:
        """The probability at one number."""
        return float(1 / (1 + np.exp(-(self.weights[0] + self.weights[1] * x / self.scale))))


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
        return [rate(p.rate), resources(self.beyond(p))]

    def scores(self, p: Position) -> list[float]:
        """The final score at the rate so far, and with what is usually made from here."""
        return [p.runs * 20 / p.over, p.runs + self.rest[p.over, min(p.wickets, 10)]]


def losses(forecast: np.ndarray, won: np.ndarray) -> tuple[float, float]:
    """Log loss and Brier score; a probability from N games is kept away from 0 and 1."""
    p = forecast.clip(0.005, 0.995)
    return float(-(won * np.log(p) + (1 - won) * np.log(1 - p)).mean()), float(((p - won) ** 2).mean())


def draw(found: list[dict], path: Path) -> None:
    """The observed frequency of wins against the forecast, in five bins of equally many positions each."""
    from matplotlib.figure import Figure

    parts = [[row for row in found if row["innings"] == innings] for innings in (0, 1)]
    # Bins of a few positions say nothing.
    parts = [part for part in parts if len(part) >= LEAST] or parts
    figure = Figure(figsize=(5.2 * len(parts), 4.4), layout="constrained")
    for axes, those in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        for place, name in enumerate(NAMES):
            order = sorted(those, key=lambda row: row["win"][place])
            bins = [part for part in np.array_split(np.array(order, dtype=object), 5) if len(part)]
            x = [np.mean([row["win"][place] for row in part]) for part in bins]
            y = np.array([np.mean([row["won"] for row in part]) for part in bins])
            bars = [np.sqrt(max(v * (1 - v), 0.02) / len(part)) for v, part in zip(y, bins, strict=True)]
            axes.errorbar(np.array(x) + 0.006 * (place - 1), y, bars, marker="o", capsize=2, linewidth=1, label=name)
        axes.set_title(f"{('first', 'second')[those[0]['innings']] if those else 'no'} innings, {len(those)} positions")
        axes.set_xlabel("forecast: the chase wins")
        axes.set_ylabel("observed")
        axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--matches", type=int, default=60)
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--first-overs", default="10", help="overs of the first innings to cut at")
    parser.add_argument("--second-overs", default="6,12", help="overs of the second innings to cut at")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no match after so long")
    parser.add_argument("--output", default=".", help="folder for calibration.json and reliability.png")
    told = parser.parse_args()
    overs = [[int(over) for over in text.split(",") if over] for text in (told.first_overs, told.second_overs)]
    subject = models.find(told.run, ModelOptions(), [])
    trained = models.load(subject, "auto")
    settings = subject.config.workload
    forecaster = MatchForecaster(subject.config, trained.learner, trained.world)
    baselines = Baselines(list(of_table(open_store(settings, World()).tables["train"], sorted({*overs[0], *overs[1]}))))
    archive, split = check_source(settings.data, settings.split, settings.split_seed)
    # An even sample over all years, in an order that any first part of is even, too.
    names = sorted(split.validation, key=lambda name: hash_of(name))[: 4 * told.matches]
    record = Path(told.output, "calibration.json")
    found = json.loads(record.read_text()) if record.exists() else []
    known = {(row["match"], row["innings"], row["over"]) for row in found}
    begun, matches = time.perf_counter(), 0
    for match in read_matches(archive, names, settings.bad_files, []):
        if matches >= told.matches or time.perf_counter() - begun > told.seconds:
            break
        if not finished(match):
            continue
        matches += 1
        for number in (0, 1):
            for over in overs[number]:
                if (match.file, number, over) in known or (shorter := cut(match, number, over)) is None:
                    continue
                p = position(match, shorter[1], over)
                endings = forecaster.forecast(shorter[0], ForecastRequest(told.games, 1)).endings
                final = endings.second if number else endings.first
                inside = np.percentile(final, 5) <= p.final <= np.percentile(final, 95)
                win = [endings.chase_wins, *baselines.wins(p)]
                score = [float(final.mean()), *baselines.scores(p)]
                found.append({**vars(p), "match": match.file, "win": win, "score": score, "inside": bool(inside)})
    seconds = time.perf_counter() - begun
    print(
        f"{len(found)} positions, {len({row['match'] for row in found})} matches, {told.games} games, {seconds:.0f} s"
    )
    for innings in (0, 1):
        those = [row for row in found if row["innings"] == innings]
        if not those:
            continue
        won = np.array([row["won"] for row in those])
        print(f"{('first', 'second')[innings]} innings, {len(those)} positions")
        for place, name in enumerate(NAMES):
            loss, brier = losses(np.array([row["win"][place] for row in those]), won)
            error = np.mean([abs(row["score"][place] - row["final"]) for row in those])
            score = f"   final score off by {error:.1f}" if not innings else ""
            print(f"  {name:15} log loss {loss:.3f}   Brier {brier:.3f}{score}")
        inside = np.mean([row["inside"] for row in those])
        print(f"  the model's 90% interval of the final score holds {inside:.0%} of them")
    record.write_text(json.dumps(found))
    draw(found, Path(told.output, "reliability.png"))


def hash_of(name: str) -> int:
    """A number for a file name that does not change between processes."""
    import zlib

    return zlib.crc32(name.encode())


if __name__ == "__main__":
    main()
