"""PPO's loss as one autograd function, with its gradient written out. B: samples.

Recorded operator by operator, its many small steps take longer than the arithmetic of a small network. The gradient
written here has the operations of autograd's in the same order, so it has the same bits, with one exception: where
rounding makes a clipped loss equal to the unclipped one, autograd would halve the gradient.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.compute import torch_private


@dataclass(frozen=True)
class Weights:
    """How far the policy may move, and what the parts of the loss weigh."""

    clip: float
    value: float
    entropy: float


@dataclass(frozen=True)
class Samples:
    """What the loss compares with, (B,) each."""

    log_probability: Tensor
    """Of the actions, when they were taken."""
    advantage: Tensor
    """As it is learned from: normalised, if it is."""
    share: float | Tensor
    """1 / samples of the global minibatch."""
    valid: Tensor | None
    """False for samples that do not count; None = all count."""


METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
"""What `surrogate` returns besides the loss, in this order."""


def surrogate(
    log_probability: Tensor, value_error: Tensor, entropy: Tensor, samples: Samples, weights: Weights
) -> tuple[Tensor, Tensor]:
    """This cohort's share of the loss () and of METRICS (5,), for what the network says now about samples (B,).

    `value_error`: squared.
    """
    given = log_probability, value_error, entropy, samples, weights
    # Under `vmap` a function of our own costs more than it saves.
    if torch_private.transforming():
        loss, metrics, *_ = _computed(*given)
        return loss, metrics.detach()
    return _Surrogate.apply(*given)  # type: ignore[no-untyped-call]


def _computed(
    log_probability: Tensor, value_error: Tensor, entropy: Tensor, samples: Samples, weights: Weights
) -> tuple[Tensor, ...]:
    """The loss, METRICS, and what the gradient needs: the slope of the policy's loss, the ratio, where it is held."""
    log_ratio = log_probability - samples.log_probability
    ratio = log_ratio.exp()
    slope = -samples.advantage
    plain, clipped = slope * ratio, slope * ratio.clamp(1 - weights.clip, 1 + weights.clip)
    held = plain < clipped
    change = ratio - 1
    rows = (
        # The larger of the two losses: clipping never makes a bad step look better, and has no gradient.
        torch.where(held, clipped.detach(), plain),
        value_error,
        entropy,
        # The estimator (r - 1) - log r is never negative and has less variance than -log r.
        (change - log_ratio).detach(),
        (change.abs() > weights.clip).float(),
    )
    table = torch.stack(rows)
    if samples.valid is not None:
        # Not torch.where, which would copy the number from the host: a recorded graph must not.
        table = table.masked_fill(~samples.valid, 0.0)
    policy_loss, value_sum, mean_entropy, *others = (table.sum(1) * samples.share).unbind()
    value_loss = value_sum * 0.5
    loss = policy_loss + weights.value * value_loss - weights.entropy * mean_entropy
    return loss, torch.stack((policy_loss, value_loss, mean_entropy, *others)), slope, ratio, held


class _Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_probability: Tensor, value_error: Tensor, entropy: Tensor, samples: Samples, weights: Weights
    ) -> tuple[Tensor, Tensor]:
        loss, metrics, *between = _computed(log_probability, value_error, entropy, samples, weights)
        ctx.save_for_backward(*between)
        ctx.samples, ctx.weights = samples, weights
        ctx.mark_non_differentiable(metrics)
        return loss, metrics

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        slope, ratio, held = ctx.saved_tensors
        samples, weights = ctx.samples, ctx.weights

        def spread(part: Tensor) -> Tensor:
            """The gradient of a mean, for each sample."""
            each = (part * samples.share).expand_as(ratio)
            return each if samples.valid is None else each.masked_fill(~samples.valid, 0.0)

        policy = spread(gradient).masked_fill(held, 0.0) * slope * ratio
        value = spread(gradient * weights.value * 0.5)
        entropy = spread(-gradient * weights.entropy) if ctx.needs_input_grad[2] else None
        return policy, value, entropy, None, None
