"""Mish with one exponential instead of three transcendental functions: several times as fast on a CPU as PyTorch's."""

from typing import Any

import torch
from torch import Tensor

_LARGE = 20.0
"""From here on Mish is the identity in float32, and the square of the exponential is still far from overflowing."""


class _Mish(torch.autograd.Function):
    """x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        power = x.clamp(max=_LARGE).exp_()
        n = power * (power + 2.0)
        part = (n + 2.0).reciprocal_()
        weight = n * part
        if ctx.needs_input_grad[0]:
            # The weight grows by 4 e^x (e^x + 1) / (n + 2)^2.
            growth = (power + 1.0).mul_(power).mul_(part).mul_(part).mul_(4.0)
            ctx.save_for_backward(torch.addcmul(weight, x, growth))
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return gradient * slope


def mish(x: Tensor) -> Tensor:
    """As torch.nn.functional.mish, in fp32 whatever format the network computes in."""
    return _Mish.apply(x.float())
