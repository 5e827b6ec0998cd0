"""The result of an evaluation: returns and lengths of complete episodes, and their statistics."""

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
    """Further numbers of each episode that the environment reports, by name."""

    def score(self) -> float:
        """The mean return, by which `best/` is chosen."""
        return fmean(self.returns)

    def numbers(self) -> dict[str, float]:
        """The means, which are logged under `eval/`."""
        return {name: value for name, value in self.summary().items() if name.endswith("_mean")}

    def summary(self) -> dict[str, Any]:
        """The content of evaluation.json."""
        columns = {"return": self.returns, "length": [float(length) for length in self.lengths], **self.extra}
        numbers = {f"{name}_{label}": value for name, column in columns.items() for label, value in _describe(column)}
        lists: dict[str, Any] = {"episode_returns": self.returns, "episode_lengths": self.lengths}
        lists |= {f"episode_{name}": column for name, column in self.extra.items()}
        return {"episodes": len(self.returns), "seed": self.seed, **numbers, **lists}


def _describe(column: list[float]) -> list[tuple[str, float]]:
    return [
        # fmean sums exactly and rounds once, so that the order of episodes does not matter.
        ("mean", fmean(column)),
        # Of these episodes (division by n), so that a single episode has one: 0.
        ("deviation", pstdev(column)),
        ("min", min(column)),
        ("max", max(column)),
        ("median", median(column)),
    ]
