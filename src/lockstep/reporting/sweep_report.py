"""What a sweep found: a line for each run, means over seeds, as a table of at most 80 columns or as JSON."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from lockstep.config.grid import value_text
from lockstep.reporting.text_table import aligned_lines, total_width

WIDTH = 80
SEED = "seed"
SweptState = Literal["finished", "stopped", "failed", "running", "waiting"]


@dataclass(frozen=True)
class SweptRun:
    """One run of a sweep."""

    name: str
    path: Path
    settings: dict[str, Any]
    """The settings that differ between the runs."""
    state: SweptState
    score: float | None = None
    """Of its best evaluation; higher is better."""
    steps: int = 0
    seconds: float = 0.0
    """That its processes ran, all attempts together."""
    reason: str = ""
    """Why it failed, in one line."""


@dataclass(frozen=True)
class SeedGroup:
    """The runs that differ in nothing but the seed."""

    settings: dict[str, Any]
    runs: int
    """Those that have a score."""
    mean: float | None
    standard_error: float | None
    """Of the mean; None if there are fewer than two runs."""


@dataclass(frozen=True)
class SweepReport:
    """All runs of a sweep."""

    name: str
    path: Path
    score_name: str
    """The metric that the score is; with a minus if lower values of it are better."""
    runs: tuple[SweptRun, ...]

    @property
    def best(self) -> SweptRun | None:
        """The run with the highest score."""
        scored = [run for run in self.runs if run.score is not None]
        return max(scored, key=lambda run: run.score or 0.0) if scored else None

    @property
    def failed(self) -> tuple[SweptRun, ...]:
        """The runs that failed."""
        return tuple(run for run in self.runs if run.state == "failed")

    def groups(self) -> tuple[SeedGroup, ...]:
        """Mean and standard error over seeds, for every combination of the other settings; empty without seeds."""
        scores: dict[tuple[Any, ...], list[float]] = {}
        settings: dict[tuple[Any, ...], dict[str, Any]] = {}
        for run in (run for run in self.runs if SEED in run.settings):
            others = {name: value for name, value in run.settings.items() if name != SEED}
            key = tuple(others.values())
            settings[key] = others
            scores.setdefault(key, []).extend([] if run.score is None else [run.score])
        return tuple(_group(settings[key], scores[key]) for key in settings)

    def to_json(self) -> dict[str, Any]:
        """The same numbers for other programs."""
        best = self.best
        return {
            "sweep": self.name,
            "path": str(self.path),
            "score": self.score_name,
            "runs": [vars(run) | {"path": str(run.path)} for run in self.runs],
            "groups": [vars(group) for group in self.groups()],
            "best": best.name if best else None,
        }

    def lines(self) -> list[str]:
        """The table of runs, the table of means if seeds were swept, and why runs failed."""
        names = list(self.runs[0].settings) if self.runs else []
        rows = [[*map(_shown, run.settings.values()), *_measured(run), run.state] for run in self.runs]
        lines = table([*names, self.score_name, "steps", "duration", "state"], rows, len(names), words_last=True)
        groups = self.groups()
        if groups:
            others = [name for name in names if name != SEED]
            means = [[*map(_shown, group.settings.values()), *_means(group)] for group in groups]
            head = [*others, f"mean {self.score_name}", "standard error", "seeds"]
            lines += ["", *table(head, means, len(others))]
        if self.best is not None:
            lines += ["", f"best: {self.best.path}"]
        return lines + [f"{run.name}: {run.state}: {run.reason}" for run in self.failed]


def score_name(points: Sequence[dict[str, Any]], best: float) -> str:
    """The metric of a run's log points whose best value is this score; with a minus if it is the negative of one."""
    tags = dict.fromkeys(tag for point in points for tag in point if tag.startswith("eval/"))
    for sign, name in ((1, "{}"), (-1, "-{}")):
        for tag in tags:
            values = [point[tag] for point in points if isinstance(point.get(tag), int | float)]
            if values and math.isclose(max(sign * value for value in values), best, rel_tol=1e-9):
                return name.format(tag)
    return "score"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int, words_last: bool = False) -> list[str]:
    """Columns two spaces apart, within 80 columns; the first `left` are aligned to the left.

    words_last: so is the last one. If the names of the first columns make it too wide, they become letters that are
    explained above.
    """
    head, legend = list(head), list[str]()
    if total_width(head, rows) > WIDTH:
        legend = [f"{letter} = {name}" for letter, name in zip(ascii_uppercase, head[:left], strict=False)]
        head[: len(legend)] = ascii_uppercase[: len(legend)]
    to_left = [place < left or (words_last and place == len(head) - 1) for place in range(len(head))]
    return legend + aligned_lines(head, rows, to_left, range(left), WIDTH)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


def _measured(run: SweptRun) -> list[str]:
    score = "-" if run.score is None else f"{run.score:.4g}"
    seconds = str(timedelta(seconds=round(run.seconds))) if run.seconds else "-"
    return [score, f"{run.steps:,}" if run.steps else "-", seconds]


def _means(group: SeedGroup) -> list[str]:
    numbers = [group.mean, group.standard_error]
    return [*("-" if number is None else f"{number:.4g}" for number in numbers), str(group.runs)]


def _group(settings: dict[str, Any], scores: list[float]) -> SeedGroup:
    mean = statistics.fmean(scores) if scores else None
    error = statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    return SeedGroup(settings, len(scores), mean, error)
