"""The loss of a classifier, a module whose forward the replicas watch. B: samples of a micro-batch, C: classes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.dataset import Dataset
from lockstep.algorithms.supervised.members import by_member, together
from lockstep.rl import distributions


@dataclass
class Batch:
    """Some samples of one group: read inside the loss, so that gathering them is part of a recorded graph."""

    dataset: Dataset
    group: int
    index: Tensor
    """(B,) which samples of the group."""
    weight: Tensor
    """(B,) 1 for a sample, 0 for padding."""
    noise: Tensor
    """(B,) a random word for each sample, which decides what dropout leaves out."""
    share: Tensor
    """() 1 / what the world's batch weighs: makes sums of cohorts and groups global means."""
    count_share: Tensor
    """() 1 / samples of the world's batch."""


class ClassificationLoss(nn.Module):
    """Cross-entropy or focal loss, with class weights and smoothed labels where asked for."""

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
        """The micro-batch's share of the global loss, and its shares of what is worth watching."""
        label = batch.dataset.labels(batch.group, batch.index)
        logits = self.network(batch.dataset.inputs(batch.group, batch.index), batch.noise)
        log_probabilities = by_member(logits)
        chosen = distributions.chosen(log_probabilities, label[:, None].expand(log_probabilities.shape[:2]))
        # Members learn each by itself: what they agree on together is not what is minimised.
        value = sample_losses(log_probabilities, chosen, self._gamma, self._smoothing).mean(1)
        if self._class_weights is not None:
            value = value * self._class_weights[label]
        loss = (value * batch.weight).sum() * batch.share
        with torch.no_grad():
            agreed = together(log_probabilities)
            hit = (agreed.argmax(1) == label).float()
            metrics = {
                "loss": loss,
                "log_loss": -(distributions.chosen(agreed, label) * batch.weight).sum() * batch.count_share,
                "accuracy": (hit * batch.weight).sum() * batch.count_share,
            }
        return loss, {name: value.detach() for name, value in metrics.items()}


def sample_losses(log_probabilities: Tensor, chosen: Tensor, gamma: float, smoothing: float) -> Tensor:
    """The losses (...) before class weights of log-probabilities (..., C), of which `chosen` (...) are the labels'."""
    value = -chosen
    if smoothing:
        value = (1.0 - smoothing) * value - smoothing * log_probabilities.mean(-1)
    if gamma:
        value = value * (1.0 - chosen.exp()).clamp(min=0.0) ** gamma
    return value


def inverse_frequency(counts: Tensor, power: float) -> Tensor:
    """(C,) class weights total / (C x count), to a power; a class that never came weighs nothing."""
    weights = (counts.sum() / (len(counts) * counts.clamp(min=1))) ** power
    return torch.where(counts > 0, weights, 0.0).float()


def batch_weights(labels: list[Tensor], weights: list[Tensor], class_weights: Tensor | None) -> Tensor:
    """(M,) what each batch of a pass weighs, by its samples' classes; from places over all lanes, group by group."""
    total = torch.zeros(weights[0].shape[0], dtype=torch.float64, device=weights[0].device)
    for label, weight in zip(labels, weights, strict=True):
        each = weight if class_weights is None else weight * class_weights[label]
        total += each.double().sum(1)
    return total
