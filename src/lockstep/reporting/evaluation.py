"""The result of an evaluation: returns and lengths of complete episodes, and their statistics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import Any


@dataclass
class Evaluation:
    """Returns and lengths of complete episodes, in episode order."""

    returns: list[float]
    lengths: list[int]
    seed: int
    extra: dict[str, list[float]] = field(default_factory=dict)
    """Further numbers of each episode that the environment reports, by name; NaN = undefined for that episode."""

    def score(self) -> float:
        """The mean return, by which `best/` is chosen."""
        return fmean(self.returns)

    def numbers(self) -> dict[str, float]:
        """The means, which are logged under `eval/`."""
        means = {name: value for name, value in self.summary().items() if name.endswith("_mean")}
        return {name: value for name, value in means.items() if value is not None}

    def summary(self) -> dict[str, Any]:
        """The content of evaluation.json; what is undefined is null there."""
        columns = {"return": self.returns, "length": [float(length) for length in self.lengths], **self.extra}
        numbers = {f"{name}_{label}": value for name, column in columns.items() for label, value in _describe(column)}
        lists: dict[str, Any] = {"episode_returns": self.returns, "episode_lengths": self.lengths}
        # JSON has no NaN.
        lists |= {
            f"episode_{name}": [None if math.isnan(value) else value for value in column]
            for name, column in self.extra.items()
        }
        return {"episodes": len(self.returns), "seed": self.seed, **numbers, **lists}


def mean_of_defined(column: Iterable[float]) -> float | None:
    """The mean of the numbers that are not NaN; None if there are none."""
    numbers = [value for value in column if not math.isnan(value)]
    return fmean(numbers) if numbers else None


def _describe(column: list[float]) -> list[tuple[str, float | None]]:
    column = [value for value in column if not math.isnan(value)]
    if not column:
        return [(label, None) for label in ("mean", "deviation", "min", "max", "median")]
    return [
        # fmean sums exactly and rounds once, so that the order of episodes does not matter.
        ("mean", fmean(column)),
        # Of these episodes (division by n), so that a single episode has one: 0.
        ("deviation", pstdev(column)),
        ("min", min(column)),
        ("max", max(column)),
        ("median", median(column)),
    ]
