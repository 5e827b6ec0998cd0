"""What supervised learning knows of its data: samples by number, in groups of one shape, and what is counted."""

from typing import Any, Protocol

import torch
from torch import Tensor


class Dataset(Protocol):
    """Samples in groups; the samples of one group are computed together, in tensors of the same shape.

    Every rank has all of it, so that any rank can make any batch.
    """

    sizes: tuple[int, ...]
    """Samples of each group."""
    classes: int
    """Labels are numbers from 0 up to this."""

    def inputs(self, group: int, index: Tensor) -> Any:
        """What the network sees of some samples of a group: (B,) sample numbers within the group -> B samples."""

    def labels(self, group: int, index: Tensor) -> Tensor:
        """The labels of some samples of a group: (B,) int64."""


class Tally(Protocol):
    """What a validation counts: sums over samples, which add up in any number of parts."""

    size: int
    """How many sums."""

    def count(self, log_probabilities: Tensor, inputs: Any, label: Tensor, weight: Tensor) -> Tensor:
        """(size,) float64 sums over a batch: log-probabilities (B, C), labels (B,) and weights (B,), 0 for padding."""

    def numbers(self, total: Tensor) -> dict[str, float]:
        """What the sums over all samples say; `log_loss` and `accuracy` among it."""


class PlainTally:
    """Log loss and accuracy."""

    size = 3

    def count(self, log_probabilities: Tensor, inputs: Any, label: Tensor, weight: Tensor) -> Tensor:
        """See Tally."""
        return torch.stack(basic_sums(log_probabilities, label, weight))

    def numbers(self, total: Tensor) -> dict[str, float]:
        """See Tally."""
        samples, surprise, hits = total.tolist()
        return {"samples": samples, "log_loss": surprise / samples, "accuracy": hits / samples}


def basic_sums(log_probabilities: Tensor, label: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Samples, the sum of their log losses, and how often the most probable class came, in float64."""
    wide = weight.double()
    chosen = log_probabilities.double().gather(1, label[:, None]).squeeze(1)
    hit = (log_probabilities.argmax(1) == label).double()
    return wide.sum(), -(chosen * wide).sum(), (hit * wide).sum()


def class_counts(dataset: Dataset, lanes: range, total_lanes: int, device: torch.device) -> Tensor:
    """(C,) float64: samples of each class among every total_lanes-th sample, from each of these lanes' numbers on."""
    counts = torch.zeros(dataset.classes, dtype=torch.float64, device=device)
    classes = torch.arange(dataset.classes, device=device)
    for group, size in enumerate(dataset.sizes):
        for lane in lanes:
            label = dataset.labels(group, torch.arange(lane, max(lane, size), total_lanes, device=device))
            # Compared class by class: a bincount on a GPU adds in the order of arrival.
            counts += (label[:, None] == classes).sum(0)
    return counts
