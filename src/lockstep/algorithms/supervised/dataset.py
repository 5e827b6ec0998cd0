"""Interfaces to the data of supervised learning: samples by number, in groups of one shape, and validation sums."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


class Dataset(Protocol):
    """Samples in groups; samples of one group have tensors of the same shape and are computed together.

    Every rank holds the whole dataset, so that any rank can compute any batch; or it is `Streamed`.
    """

    sizes: tuple[int, ...]
    """Number of samples in each group."""

    @property
    def classes(self) -> int:
        """Number of classes C; labels are 0 to C - 1."""

    def inputs(self, group: int, index: Tensor) -> Any:
        """The network's inputs for samples of a group: (B,) sample numbers within the group -> B samples."""

    def labels(self, group: int, index: Tensor) -> Any:
        """The labels of samples of a group: (B,) int64 for classes, or whatever the objective compares with."""


@runtime_checkable
class Streamed(Protocol):
    """A dataset of one group that is not in memory: it reads the samples of this rank's coming batches ahead.

    Only the samples of one batch are at hand, its window; an index then is a position in the window.
    """

    keeps_order: bool
    """Whether samples can only be read in their own order, and so are not shuffled."""

    def begin(self, epoch: int, batches: Tensor) -> None:
        """Start to read: (M, P) sample numbers, on the host. Whatever was begun before is given up."""

    def advance(self) -> None:
        """Put the samples of the next batch into the window, in place."""


class Tally(Protocol):
    """The sums that a validation computes over samples; they can be added over batches and ranks."""

    size: int
    """Number of sums."""
    watched: str
    """The number by which the best weights are chosen, and that early stopping watches: the lower the better."""

    def count(self, prediction: Any, inputs: Any, label: Any, weight: Tensor) -> Tensor:
        """(size,) float64 sums over a batch; weights (B,) are 0 for padding.

        `prediction`: what the objective serves, such as log-probabilities (B, C); `label`: such as (B,) int64.
        """

    def numbers(self, total: Tensor) -> dict[str, float]:
        """Metrics from the sums over all samples; they include `samples` and the watched one."""


class PlainTally:
    """Log loss and accuracy."""

    size = 3
    watched = "log_loss"

    def count(self, prediction: Tensor, inputs: Any, label: Tensor, weight: Tensor) -> Tensor:
        """See Tally."""
        return torch.stack(basic_sums(prediction, label, weight))

    def numbers(self, total: Tensor) -> dict[str, float]:
        """See Tally."""
        samples, log_loss, hits = total.tolist()
        return {"samples": samples, "log_loss": log_loss / samples, "accuracy": hits / samples}


def basic_sums(log_probabilities: Tensor, label: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number of samples, sum of their log losses, and number of correct predictions, in float64."""
    # float64: sums of many samples then do not depend noticeably on how batches and ranks divide them.
    wide = weight.double()
    chosen = log_probabilities.double().gather(1, label[:, None]).squeeze(1)
    hit = (log_probabilities.argmax(1) == label).double()
    return wide.sum(), -(chosen * wide).sum(), (hit * wide).sum()


def class_counts(dataset: Dataset, lanes: range, total_lanes: int, device: torch.device) -> Tensor:
    """(C,) float64: samples of each class in these lanes; lane i has every total_lanes-th sample from i on."""
    counts = torch.zeros(dataset.classes, dtype=torch.float64, device=device)
    classes = torch.arange(dataset.classes, device=device)
    for group, size in enumerate(dataset.sizes):
        for lane in lanes:
            # max: torch.arange refuses a stop below its start, as in a group with fewer samples than lanes.
            label = dataset.labels(group, torch.arange(lane, max(lane, size), total_lanes, device=device))
            # Not bincount, which on a GPU adds in an order that is not deterministic.
            counts += (label[:, None] == classes).sum(0)
    return counts
