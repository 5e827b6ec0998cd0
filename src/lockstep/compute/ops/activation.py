"""Mish with one exponential instead of three transcendental functions: several times faster than PyTorch's on a CPU."""

from typing import Any

import torch
from torch import Tensor

# Above this Mish is the identity in float32, and the square of the exponential is still far from overflow.
_LARGE = 20.0


class _Mish(torch.autograd.Function):
    """x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        power = x.clamp(max=_LARGE).exp_()
        n = power * (power + 2.0)
        part = (n + 2.0).reciprocal_()
        weight = n * part
        # The derivative is worked out here, where e^x is at hand: one saved tensor instead of three.
        if ctx.needs_input_grad[0]:
            # Derivative of the weight n / (n + 2): 4 e^x (e^x + 1) / (n + 2)^2.
            growth = (power + 1.0).mul_(power).mul_(part).mul_(part).mul_(4.0)
            ctx.save_for_backward(torch.addcmul(weight, x, growth))
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return gradient * slope


def mish(x: Tensor) -> Tensor:
    """As torch.nn.functional.mish, always in fp32, also under autocast."""
    return _Mish.apply(x.float())
