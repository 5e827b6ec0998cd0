"""PPO's loss as one autograd function, with its gradient written out. B: samples.

Recorded operator by operator, its many small steps take longer than the arithmetic of a small network. The gradient
written here has the operations of autograd's in the same order, so it has the same bits, with one exception: where
rounding makes a clipped loss equal to the unclipped one, autograd would halve the gradient.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


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
    share, metrics, *_ = _Surrogate.apply(  # type: ignore[no-untyped-call]
        log_probability,
        value_error,
        entropy,
        samples.log_probability,
        samples.advantage,
        samples.share,
        samples.valid,
        weights,
    )
    return share, metrics


class _Surrogate(torch.autograd.Function):
    # Lanes computed together have these operations with one more axis.
    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_probability: Tensor,
        value_error: Tensor,
        entropy: Tensor,
        old: Tensor,
        advantage: Tensor,
        share: float | Tensor,
        valid: Tensor | None,
        weights: Weights,
    ) -> tuple[Tensor, ...]:
        """The loss, METRICS, and what the gradient needs."""
        log_ratio = log_probability - old
        ratio = log_ratio.exp()
        slope = -advantage
        plain, clipped = slope * ratio, slope * ratio.clamp(1 - weights.clip, 1 + weights.clip)
        change = ratio - 1
        rows = (
            # The larger of the two losses: clipping never makes a bad step look better.
            torch.maximum(plain, clipped),
            value_error,
            entropy,
            # The estimator (r - 1) - log r is never negative and has less variance than -log r.
            change - log_ratio,
            (change.abs() > weights.clip).float(),
        )
        table = torch.stack(rows)
        if valid is not None:
            # Not torch.where, which would copy the number from the host: a recorded graph must not.
            table = table.masked_fill(~valid, 0.0)
        metrics = table.sum(1) * share
        metrics[1] *= 0.5
        policy_loss, value_loss, mean_entropy, *_ = metrics.unbind()
        loss = policy_loss + weights.value * value_loss - weights.entropy * mean_entropy
        return loss, metrics, slope, ratio, plain < clipped

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *_, share, valid, weights = inputs
        _, *others = output
        ctx.mark_non_differentiable(*others)
        # A tensor only if samples may not be valid.
        tensors = (share, valid) if isinstance(share, Tensor) else (None, valid)
        ctx.save_for_backward(*others[1:], *tensors)
        ctx.share, ctx.weights = share, weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        slope, ratio, held, share, valid = ctx.saved_tensors
        weights = ctx.weights
        share = ctx.share if share is None else share

        def spread(part: Tensor) -> Tensor:
            """The gradient of a mean, for each sample."""
            each = (part * share).expand_as(ratio)
            return each if valid is None else each.masked_fill(~valid, 0.0)

        policy = spread(gradient).masked_fill(held, 0.0) * slope * ratio
        value = spread(gradient * weights.value * 0.5)
        entropy = spread(-gradient * weights.entropy) if ctx.needs_input_grad[2] else None
        return policy, value, entropy, None, None, None, None, None
