"""What is minimised: classes by their log-probabilities, or any loss that is a number for each sample. B: samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.losses import ClassificationLoss, PerSample, SampleLoss, sample_losses
from lockstep.algorithms.supervised.members import by_member, together
from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.compute.dropout import DropoutWords
from lockstep.errors import UserError
from lockstep.rl import distributions


class Objective(Protocol):
    """How a network's output becomes a loss, and a prediction."""

    classifies: bool
    """Whether labels are classes, so that there are probabilities, and class weights can be used."""

    def loss(self, network: nn.Module, class_weights: Tensor | None, words: DropoutWords | None) -> nn.Module:
        """The loss module: Batch -> its share of the global loss, and of the metrics."""

    def serve(self, output: Any) -> Any:
        """The prediction that is validated, from the network's output."""


class Classification:
    """Cross-entropy or focal loss of classes; several members of a network are averaged."""

    classifies = True

    def __init__(self, settings: SupervisedSettings) -> None:
        self._gamma, self._smoothing = gamma_of(settings), settings.label_smoothing

    def loss(self, network: nn.Module, class_weights: Tensor | None, words: DropoutWords | None) -> nn.Module:
        """See Objective."""
        return ClassificationLoss(network, class_weights, self._gamma, self._smoothing, words)

    def serve(self, output: Tensor) -> Tensor:
        """Log-probabilities (B, C)."""
        return together(by_member(output))


@dataclass
class SampleObjective:
    """Any loss and metrics (prediction, target) -> (B,)."""

    function: PerSample
    metrics: Mapping[str, PerSample] = field(default_factory=dict)
    classifies: bool = False

    def loss(self, network: nn.Module, class_weights: Tensor | None, words: DropoutWords | None) -> nn.Module:
        """See Objective."""
        return SampleLoss(network, self.function, self.metrics, class_weights, words)

    def serve(self, output: Any) -> Any:
        """The network's own output."""
        return output


def gamma_of(settings: SupervisedSettings) -> float:
    """The focal loss's gamma; 0 for the others."""
    return settings.focal_gamma if settings.loss == "focal" else 0.0


class CrossEntropy:
    """Cross-entropy or focal loss of logits (B, C) and classes (B,)."""

    def __init__(self, gamma: float = 0.0, smoothing: float = 0.0) -> None:
        self._gamma, self._smoothing = gamma, smoothing

    def __call__(self, prediction: Tensor, target: Tensor) -> Tensor:
        """(B,) losses."""
        check_classes(prediction, target)
        log_probabilities = prediction.float().log_softmax(-1)
        chosen = distributions.chosen(log_probabilities, target)
        return sample_losses(log_probabilities, chosen, self._gamma, self._smoothing)


def check_classes(prediction: Any, target: Any) -> None:
    """Raise UserError unless these are logits (B, C) and classes (B,)."""
    fits = isinstance(prediction, Tensor) and isinstance(target, Tensor) and prediction.dim() == 2
    if not fits or target.dim() != 1 or target.dtype != torch.int64:
        raise UserError(
            f"loss cross_entropy: the model returned {_described(prediction)} for targets {_described(target)}; "
            "expected are logits (B, classes) and int64 classes (B,); else give a loss function of your own"
        )
    if target.device.type == "cpu" and not 0 <= int(target.min()) <= int(target.max()) < prediction.shape[1]:
        raise UserError(
            f"loss cross_entropy: there are targets from {int(target.min())} to {int(target.max())}, and the model "
            f"returned {prediction.shape[1]} logits; classes are counted from 0"
        )


def accuracy(prediction: Tensor, target: Tensor) -> Tensor:
    """(B,) 1 where the largest logit is that of the class."""
    return (prediction.argmax(-1) == target).float()


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """(B,) the mean squared error of each sample."""
    return _difference("mse", prediction, target).square().flatten(1).mean(1)


def absolute_error(prediction: Tensor, target: Tensor) -> Tensor:
    """(B,) the mean absolute error of each sample."""
    return _difference("l1", prediction, target).abs().flatten(1).mean(1)


def _difference(loss: str, prediction: Any, target: Any) -> Tensor:
    """(B, ...) prediction - target; a model that returns (B, 1) may be compared with targets (B,)."""
    tensors = isinstance(prediction, Tensor) and isinstance(target, Tensor)
    if not tensors or prediction.numel() != target.numel() or len(prediction) != len(target):
        # Without this (B, 1) and (B,) would be broadcast to (B, B), silently.
        raise UserError(
            f"loss {loss}: the model returned {_described(prediction)} for targets {_described(target)}; expected are "
            "equal shapes"
        )
    return (prediction.float().flatten(1) if prediction.dim() > 1 else prediction.float()[:, None]) - (
        target.float().reshape(len(target), -1)
    )


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"of shape {tuple(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"
