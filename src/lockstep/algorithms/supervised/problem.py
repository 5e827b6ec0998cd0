"""The data of supervised learning: training samples, validation samples, and the sums of a validation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lockstep.algorithms.supervised.dataset import Dataset, PlainTally, Tally
from lockstep.algorithms.supervised.objectives import Objective


@dataclass(kw_only=True)
class DataProblem:
    """Labelled samples. Every rank holds all of them, on its device, or streams those of its own lanes."""

    name: str
    train: Dataset
    validation: Dataset
    """Used for early stopping and to choose the best weights."""
    tally: Tally = field(default_factory=PlainTally)
    """The sums that a validation computes."""
    objective: Objective | None = None
    """What is minimised; None = the classification loss of the settings."""
    evaluation: Callable[[Callable[[Any], Any]], dict[str, float]] | None = None
    """More numbers for every validation, from a function that predicts; called on one rank."""
    data_digest: str = ""
    """Identifies the data: a run can only be resumed with the same. Empty = unknown."""
    sample: Any = None
    """What one sample looks like, as JSON, so that the model can be used without the data; None = it cannot."""
