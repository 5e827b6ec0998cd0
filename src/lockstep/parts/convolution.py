"""A 3x3 convolution whose backward pass is fast where the library's own is slow: on Arm processors.

There oneDNN has a quick kernel for the forward pass only; its backward runs at a third of that speed. Both gradients
are convolutions themselves, so this one computes them with the forward kernel. B: batch, C: channels, N: side.
"""

import functools
import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_LONGEST_SUM = 8192
"""Products that the forward kernel may add up one after another: a float32 loses digits with every addition."""


class Conv3x3(nn.Conv2d):
    """`nn.Conv2d` with a kernel of 3 and a padding of 1: the same parameters, the same values, a quicker backward."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3, padding=1)

    def forward(self, planes: Tensor) -> Tensor:
        """(B, C, N, N) to (B, C', N, N)."""
        if _worth_it(planes, self.weight):
            return _ForwardOnly.apply(planes, self.weight, self.bias)
        return super().forward(planes)


def _worth_it(planes: Tensor, weight: Tensor) -> bool:
    trains = torch.is_grad_enabled() and weight.requires_grad and not torch.compiler.is_compiling()
    plain = weight.device.type == "cpu" and weight.dtype == planes.dtype and not torch.is_autocast_enabled("cpu")
    return trains and plain and _slow_backward()


@functools.cache
def _slow_backward() -> bool:
    """Whether this is a processor whose backward kernels are the slow ones; on x86 the library's own are as good."""
    return platform.machine() in ("aarch64", "arm64") and torch.backends.mkldnn.is_available()


class _ForwardOnly(torch.autograd.Function):
    """The convolution and its gradients, all by the forward kernel."""

    @staticmethod
    def forward(ctx: Any, planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(planes, weight)
        return F.conv2d(planes, weight, bias, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        planes, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        return (
            _input_gradient(gradient, weight) if ctx.needs_input_grad[0] else None,
            _weight_gradient(planes, gradient, weight),
            gradient.sum((0, 2, 3)),
        )


def _input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    """What reaches the input: the gradient convolved with the kernel turned round, channels in and out exchanged."""
    kernel = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    return F.conv2d(gradient, kernel, padding=1)


def _weight_gradient(planes: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    """How input and gradient go together at each of the nine shifts: a convolution with batch and channels exchanged.

    The gradient's planes are its kernels, N x N large; 3 x 3 positions of them fit into the padded input.
    """
    parts = -(-planes.shape[0] * planes.shape[2] * planes.shape[3] // _LONGEST_SUM)
    pairs = zip(planes.chunk(parts), gradient.chunk(parts), strict=True)
    found = [F.conv2d(_exchange(inside), _exchange(outside), padding=1) for inside, outside in pairs]
    # In the weight's memory order, as DDP's and our flat gradients expect it.
    return torch.empty_like(weight).copy_(torch.stack(found).sum(0).transpose(0, 1))


def _exchange(planes: Tensor) -> Tensor:
    """(B, C, N, N) as (C, B, N, N), channels last. In two copies, since each of them goes along whole cache lines."""
    batch, channels, height, width = planes.shape
    columns = planes.permute(0, 2, 3, 1).reshape(batch, -1).t().contiguous()
    return columns.view(height, width, channels, batch).permute(2, 0, 1, 3).contiguous().permute(0, 3, 1, 2)
