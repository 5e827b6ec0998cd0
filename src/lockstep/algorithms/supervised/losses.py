"""The loss of a classifier, a module that DDP can wrap. B: samples of a micro-batch, K: members, C: classes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.dataset import Dataset
from lockstep.algorithms.supervised.members import by_member, together
from lockstep.rl import distributions


@dataclass
class Batch:
    """Some samples of one group, read inside the loss so that gathering them is part of a recorded graph."""

    dataset: Dataset
    group: int
    index: Tensor
    """(B,) which samples of the group."""
    weight: Tensor
    """(B,) 1 for a sample, 0 for padding."""
    noise: Tensor
    """(B,) a random word for each sample, which determines its dropout mask."""
    share: Tensor
    """() 1 / total weight of the global batch, which turns the sums of cohorts and groups into global means."""
    count_share: Tensor
    """() 1 / samples of the global batch: for metrics, which ignore class weights."""


class ClassificationLoss(nn.Module):
    """Cross-entropy or focal loss, with optional class weights and label smoothing."""

    def __init__(
        self, network: nn.Module, class_weights: Tensor | None = None, gamma: float = 0.0, smoothing: float = 0.0
    ) -> None:
        """`gamma`: of the focal loss; 0 = cross-entropy.

        The network: (inputs, noise) -> logits (B, C), or (B, K, C) of K members.
        """
        super().__init__()
        self.network = network
        self._gamma, self._smoothing = gamma, smoothing
        # Not a buffer: it belongs to the training samples, not to the model.
        self._class_weights = class_weights

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The micro-batch's share of the global loss, and of each metric."""
        label = batch.dataset.labels(batch.group, batch.index)
        logits = self.network(batch.dataset.inputs(batch.group, batch.index), batch.noise)
        log_probabilities = by_member(logits)
        chosen = distributions.chosen(log_probabilities, label[:, None].expand(log_probabilities.shape[:2]))
        # Each member has its own loss; the loss of their averaged prediction is not minimised.
        value = sample_losses(log_probabilities, chosen, self._gamma, self._smoothing).mean(1)
        if self._class_weights is not None:
            value = value * self._class_weights[label]
        loss = (value * batch.weight).sum() * batch.share
        with torch.no_grad():
            # Metrics judge the averaged prediction, as validation does.
            agreed = together(log_probabilities)
            hit = (agreed.argmax(1) == label).float()
            metrics = {
                "loss": loss,
                "log_loss": -(distributions.chosen(agreed, label) * batch.weight).sum() * batch.count_share,
                "accuracy": (hit * batch.weight).sum() * batch.count_share,
            }
        return loss, {name: value.detach() for name, value in metrics.items()}


def sample_losses(log_probabilities: Tensor, chosen: Tensor, gamma: float, smoothing: float) -> Tensor:
    """Losses (...) before class weights, of log-probabilities (..., C); `chosen` (...): those of the labels."""
    value = -chosen
    if smoothing:
        # Spread over all C classes, the label included, as in torch's cross_entropy.
        value = (1.0 - smoothing) * value - smoothing * log_probabilities.mean(-1)
    if gamma:
        # Rounding can make a probability exceed 1 slightly, and a power of a negative number is NaN.
        value = value * (1.0 - chosen.exp()).clamp(min=0.0) ** gamma
    return value


def inverse_frequency(counts: Tensor, power: float) -> Tensor:
    """(C,) class weights (total / (C x count)) ** power; 0 for a class without samples."""
    # The clamp only avoids a division by zero; such classes get weight 0 below.
    weights = (counts.sum() / (len(counts) * counts.clamp(min=1))) ** power
    return torch.where(counts > 0, weights, 0.0).float()


def batch_weights(labels: list[Tensor], weights: list[Tensor], class_weights: Tensor | None) -> Tensor:
    """(M,) total weight of each batch of a pass, by its samples' classes; from the places of all lanes, per group."""
    total = torch.zeros(weights[0].shape[0], dtype=torch.float64, device=weights[0].device)
    for label, weight in zip(labels, weights, strict=True):
        each = weight if class_weights is None else weight * class_weights[label]
        total += each.double().sum(1)
    return total
