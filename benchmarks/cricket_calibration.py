"""How good win probabilities and scores of matches played out are: `python benchmarks/cricket_calibration.py RUN`.

Cuts unseen matches of the run's own split off after some overs, plays each out with `lockstep predict`'s simulation,
and compares with two baselines that are fitted on the training matches: a logistic curve of the required rate (first
innings: of the run rate), and one of the runs wanted beyond those that the balls and wickets left usually bring. Prints
log loss, Brier score and errors of the score, and draws reliability.png. Matches with a revised target, fewer overs or
no result are left out.

Positions of one match are not independent: intervals come from resampling whole matches. A calibration is fitted on
four fifths of the unseen matches and judged on the fifth that is left, in turn.

Positions that --output has from earlier calls are kept and not played again. `--share 2/8` plays an eighth of the
matches, for eight processes at once; a last call with `--matches 0` reads what all of them found.
"""

import argparse
import json
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cricket_positions import Baselines, Logistic, cut, has_result, of_table, position

from lockstep.cli import model as models
from lockstep.cli.model import ModelOptions
from lockstep.distributed.world import World
from lockstep.workloads.capabilities import ForecastRequest
from lockstep.workloads.cricket.data.preparation import open_store, read_matches
from lockstep.workloads.cricket.live.forecaster import MatchForecaster
from lockstep.workloads.cricket.matches.split import check_source

LEAST = 30
"""Positions that an innings needs to be drawn."""
FOLDS = 5
RESAMPLES = 10_000
NAMES = ("played out", "required rate", "resources left")
CALIBRATED, COMBINED = "played out, calibrated", "played out and resources"


@dataclass(frozen=True)
class Forecasts:
    """The positions of one innings, N of them, and who was right."""

    rows: list[dict]
    """As they are stored in calibration.json."""

    @property
    def won(self) -> np.ndarray:
        """(N,) 1 if the chase won, 0.5 after a tie."""
        return np.array([row["won"] for row in self.rows])

    @property
    def fold(self) -> np.ndarray:
        """(N,) by match."""
        return np.array([number_of(row["match"]) % FOLDS for row in self.rows])

    def wins(self) -> dict[str, np.ndarray]:
        """By the name of who forecasts: (N,) the probability that the chase wins."""
        games = np.array([row["games"] for row in self.rows])
        raw = dict(zip(NAMES, np.array([row["win"] for row in self.rows]).T, strict=True))
        # A share of N games is never quite 0 or 1: half a game more for each side.
        raw[NAMES[0]] = (raw[NAMES[0]] * games + 0.5) / (games + 1)
        logits = {name: np.log(p / (1 - p)) for name, p in raw.items()}
        own = logits[NAMES[0]]
        return raw | {
            CALIBRATED: self.cross_fitted(own[:, None]),
            COMBINED: self.cross_fitted(np.stack([own, logits["resources left"]], 1)),
        }

    def cross_fitted(self, x: np.ndarray) -> np.ndarray:
        """(N,) probabilities of a logistic curve of x that has not seen the match it is used on."""
        result, fold = np.empty(len(x)), self.fold
        for number in np.unique(fold):
            inside = fold == number
            # All in one fold: nothing to fit on.
            result[inside] = Logistic(x[~inside], self.won[~inside])(x[inside]) if not inside.all() else 0.5
        return result

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """A 95% interval of the mean of values (N,), by resampling matches."""
        _, match = np.unique([row["match"] for row in self.rows], return_inverse=True)
        sums, counts = np.bincount(match, values), np.bincount(match)
        drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
        means = sums[drawn].sum(1) / counts[drawn].sum(1)
        return tuple(np.percentile(means, [2.5, 97.5]))


def log_losses(forecast: np.ndarray, won: np.ndarray) -> np.ndarray:
    p = forecast.clip(0.001, 0.999)
    return -(won * np.log(p) + (1 - won) * np.log(1 - p))


def tell(those: Forecasts) -> None:
    won, forecasts, chase = those.won, those.wins(), those.rows[0]["innings"]
    matches = len({row["match"] for row in those.rows})
    print(f"{('first', 'second')[chase]} innings, {len(won)} positions of {matches} matches")
    own = log_losses(forecasts[NAMES[0]], won)
    for name, forecast in forecasts.items():
        losses = log_losses(forecast, won)
        brier = float(((forecast - won) ** 2).mean())
        more = (
            ""
            if name == NAMES[0]
            else " more than played out {:+.4f} ({:+.4f} to {:+.4f})".format(
                (losses - own).mean(), *those.interval(losses - own)
            )
        )
        print(f"  {name:24} log loss {losses.mean():.4f}   Brier {brier:.4f}  {more}")
    better = log_losses(forecasts[CALIBRATED], won)
    for name in ("resources left", "required rate", COMBINED):
        more = log_losses(forecasts[name], won) - better
        print(
            f"  {name} more than calibrated {more.mean():+.4f} ({{:+.4f}} to {{:+.4f}})".format(*those.interval(more))
        )
    logit = np.log(forecasts[NAMES[0]] / (1 - forecasts[NAMES[0]]))
    curve = Logistic(logit, won)
    print(f"  calibration on all of them: {curve.weights[0]:+.3f} {curve.weights[1] / curve.scale[0]:+.3f} x log-odds")
    if not chase:
        for place, name in enumerate(NAMES):
            off = np.array([abs(row["score"][place] - row["final"]) for row in those.rows])
            print(
                f"  {name:24} final score off by {off.mean():.1f} ({{:.1f}} to {{:.1f}})".format(*those.interval(off))
            )
    inside = np.array([float(row["inside"]) for row in those.rows])
    low, high = those.interval(inside)
    print(f"  the 90% interval of the final score holds {inside.mean():.0%} of them ({low:.0%} to {high:.0%})")


def draw(parts: list[Forecasts], path: Path) -> None:
    """The observed frequency of wins against the forecast, in bins of equally many positions."""
    from matplotlib.figure import Figure

    # Bins of a few positions say nothing.
    parts = [part for part in parts if len(part.rows) >= LEAST] or parts
    figure = Figure(figsize=(5.2 * len(parts), 4.4), layout="constrained")
    for axes, those in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        won = those.won
        for place, (name, forecast) in enumerate(list(those.wins().items())[:4]):
            bins = np.array_split(np.argsort(forecast, kind="stable"), 8 if len(won) >= 200 else 5)
            x = np.array([forecast[part].mean() for part in bins])
            y = np.array([won[part].mean() for part in bins])
            bars = [np.sqrt(max(v * (1 - v), 0.02) / len(part)) for v, part in zip(y, bins, strict=True)]
            axes.errorbar(x + 0.004 * (place - 1.5), y, bars, marker="o", capsize=2, linewidth=1, label=name)
        matches = len({row["match"] for row in those.rows})
        innings = ("first", "second")[those.rows[0]["innings"]]
        axes.set_title(f"{innings} innings, {len(won)} positions of {matches} matches")
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
    parser.add_argument("--share", default="1/1", help="which part of the matches, such as 2/8")
    parser.add_argument("--output", default=".", help="folder for calibration-*.json and reliability.png")
    told = parser.parse_args()
    overs = [[int(over) for over in text.split(",") if over] for text in (told.first_overs, told.second_overs)]
    folder, part, parts = Path(told.output), *map(int, told.share.split("/"))
    found = [row for path in sorted(folder.glob("calibration-*.json")) for row in json.loads(path.read_text())]
    if told.matches:
        found += play(told, overs, found, Path(folder, f"calibration-{part}.json"), (part, parts))
    kept = [Forecasts([row for row in found if row["innings"] == innings]) for innings in (0, 1)]
    kept = [those for those in kept if those.rows]
    for those in kept:
        tell(those)
    draw(kept, Path(folder, "reliability.png"))


def play(
    told: argparse.Namespace, overs: list[list[int]], known: list[dict], record: Path, share: tuple[int, int]
) -> list[dict]:
    """Positions that are not known yet; written to the record after every match."""
    subject = models.find(told.run, ModelOptions(), [])
    trained = models.load(subject, "auto")
    settings = subject.config.workload
    forecaster = MatchForecaster(subject.config, trained.learner, trained.world)
    baselines = Baselines(list(of_table(open_store(settings, World()).tables["train"], sorted({*overs[0], *overs[1]}))))
    archive, split = check_source(settings.data, settings.split, settings.split_seed)
    # An even sample over all years, in an order that any first part of is even, too.
    names = sorted(split.validation, key=number_of)[share[0] - 1 :: share[1]][: 4 * told.matches]
    earlier = json.loads(record.read_text()) if record.exists() else []
    done, found = {(row["match"], row["innings"], row["over"]) for row in known}, []
    begun, matches = time.perf_counter(), 0
    for match in read_matches(archive, names, settings.bad_files, []):
        if matches >= told.matches or time.perf_counter() - begun > told.seconds:
            break
        if not has_result(match):
            continue
        matches += 1
        for number in (0, 1):
            for over in overs[number]:
                if (match.file, number, over) in done or (shorter := cut(match, number, over)) is None:
                    continue
                p = position(match, shorter[1], over)
                endings = forecaster.forecast(shorter[0], ForecastRequest(told.games, 1)).endings
                final = endings.second if number else endings.first
                inside = np.percentile(final, 5) <= p.final <= np.percentile(final, 95)
                win = [endings.chase_wins, *baselines.wins(p)]
                score = [float(final.mean()), *baselines.scores(p)]
                about = {"match": match.file, "games": told.games}
                found.append({**vars(p), **about, "win": win, "score": score, "inside": bool(inside)})
        # After every match: a long calculation that is interrupted goes on where it was.
        record.write_text(json.dumps(earlier + found, default=float))
    print(f"{matches} matches, {told.games} games each, {time.perf_counter() - begun:.0f} s")
    return found


def number_of(name: str) -> int:
    """A number for a file name that does not change between processes."""
    return zlib.crc32(name.encode())


if __name__ == "__main__":
    main()
