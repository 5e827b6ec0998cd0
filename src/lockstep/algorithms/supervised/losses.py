"""Losses as modules that DDP can wrap. B: samples of a micro-batch, K: members, C: classes."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.dataset import Dataset
from lockstep.algorithms.supervised.members import by_member, together
from lockstep.compute.dropout import DropoutWords
from lockstep.errors import UserError
from lockstep.rl import distributions

PerSample = Callable[[Any, Any], Tensor]
"""A loss or metric: (prediction, target) of B samples -> (B,)."""


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
        self,
        network: nn.Module,
        class_weights: Tensor | None = None,
        gamma: float = 0.0,
        smoothing: float = 0.0,
        words: DropoutWords | None = None,
    ) -> None:
        """`gamma`: of the focal loss; 0 = cross-entropy. `words`: of the network's dropout layers, if it has any.

        The network: (inputs, noise) -> logits (B, C), or (B, K, C) of K members.
        """
        super().__init__()
        self.network, self._words = network, words
        self._gamma, self._smoothing = gamma, smoothing
        # Not a buffer: it belongs to the training samples, not to the model.
        self._class_weights = class_weights

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The micro-batch's share of the global loss, and of each metric."""
        label = batch.dataset.labels(batch.group, batch.index)
        with _dropping(self._words, batch.noise):
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


class SampleLoss(nn.Module):
    """Any loss and metrics that are functions of (prediction, target) and return a number for each sample."""

    def __init__(
        self,
        network: nn.Module,
        loss: PerSample,
        metrics: Mapping[str, PerSample],
        class_weights: Tensor | None = None,
        words: DropoutWords | None = None,
    ) -> None:
        """The network: (inputs, noise) -> prediction, a tensor or several."""
        super().__init__()
        self.network, self._words = network, words
        self._loss, self._metrics = loss, dict(metrics)
        # Not a buffer: it belongs to the training samples, not to the model.
        self._class_weights = class_weights

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The micro-batch's share of the global loss, and of each metric."""
        target = batch.dataset.labels(batch.group, batch.index)
        with _dropping(self._words, batch.noise):
            prediction = self.network(batch.dataset.inputs(batch.group, batch.index), batch.noise)
        value = each_of("loss", self._loss, prediction, target, len(batch.weight)).float()
        if self._class_weights is not None:
            value = value * self._class_weights[target]
        loss = (value * batch.weight).sum() * batch.share
        shares = {"loss": loss.detach()}
        with torch.no_grad():
            for name, metric in self._metrics.items():
                each = each_of(f"metric {name}", metric, prediction, target, len(batch.weight)).float()
                shares[name] = (each * batch.weight).sum() * batch.count_share
        return loss, shares


def each_of(what: str, function: PerSample, prediction: Any, target: Any, count: int) -> Tensor:
    """(B,) the values of a loss or metric; UserError if it did not return one for each sample."""
    value = function(prediction, target)
    if isinstance(value, Tensor) and tuple(value.shape) == (count,):
        return value
    if isinstance(value, Tensor) and value.numel() == 1:
        raise UserError(
            f'{what}: returned one number for the whole batch; use reduction="none" and return one for each sample, '
            f"shape ({count},): the mean is taken over all ranks"
        )
    found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise UserError(
        f"{what}: returned {found}; expected is one number for each sample, shape ({count},), for example by "
        ".flatten(1).mean(1)"
    )


def _dropping(words: DropoutWords | None, noise: Tensor) -> AbstractContextManager[None]:
    """The samples' random words for the dropout layers of a forward pass."""
    return nullcontext() if words is None else words.given(noise)


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


def batch_weights(weights: list[Tensor], labels: list[Tensor], class_weights: Tensor | None) -> Tensor:
    """(M,) total weight of each batch of a pass, by its samples' classes; from the places of all lanes, per group.

    `labels`: not needed without class weights.
    """
    total = torch.zeros(weights[0].shape[0], dtype=torch.float64, device=weights[0].device)
    for group, weight in enumerate(weights):
        each = weight if class_weights is None else weight * class_weights[labels[group]]
        total += each.double().sum(1)
    return total
