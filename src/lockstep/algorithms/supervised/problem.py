"""The data of supervised learning: training samples, validation samples, and what a validation counts."""

from dataclasses import dataclass, field

from lockstep.algorithms.supervised.dataset import Dataset, PlainTally, Tally


@dataclass(kw_only=True)
class DataProblem:
    """Labelled samples. Every rank holds all of them, on its device."""

    name: str
    train: Dataset
    validation: Dataset
    """Decides when to stop early, and which weights are the best."""
    tally: Tally = field(default_factory=PlainTally)
    """What a validation counts."""
    data_digest: str = ""
    """Identifies the data: a run can only be resumed with the same. Empty = unknown."""
