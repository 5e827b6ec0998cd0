"""The data of supervised learning: training samples, validation samples, and the sums of a validation."""

from dataclasses import dataclass, field

from lockstep.algorithms.supervised.dataset import Dataset, PlainTally, Tally


@dataclass(kw_only=True)
class DataProblem:
    """Labelled samples. Every rank holds all of them, on its device."""

    name: str
    train: Dataset
    validation: Dataset
    """Used for early stopping and to choose the best weights."""
    tally: Tally = field(default_factory=PlainTally)
    """The sums that a validation computes."""
    data_digest: str = ""
    """Identifies the data: a run can only be resumed with the same. Empty = unknown."""
