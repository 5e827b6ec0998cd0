"""A 3x3 convolution whose backward pass is fast on every processor, and can be computed for several lanes at once.

On Arm processors oneDNN has a fast kernel for the forward pass only. The gradient of the input is itself a convolution,
so the forward kernel computes it here; the gradient of the weights is a matrix product, and that of the bias a sum.
Elsewhere oneDNN's kernels compute the gradients. B: boards, C: channels, H: height, W: width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.compute import torch_private
from lockstep.compute.lane_axis import by_lane, by_row, with_rule
from lockstep.compute.machine import is_arm

# Cells per matrix product of the weight gradient. Their 3x3 windows take nine times the memory of the input, which
# should fit into a cache.
_CELLS_AT_ONCE = 4096


class Conv3x3(nn.Conv2d):
    """`nn.Conv2d` with a kernel of 3 and a padding of 1: the same parameters and values, a faster backward pass."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3, padding=1)

    def forward(self, planes: Tensor) -> Tensor:
        """Planes (B, C, H, W) -> (B, C', H, W)."""
        if _own_gradients(planes, self.weight):
            return torch_private.apply(_Convolution, planes, self.weight, self.bias)
        with quick_kernels(planes):
            return super().forward(planes)


def _own_gradients(planes: Tensor, weight: Tensor) -> bool:
    """Whether `_Convolution` applies and is better: fp32 training on a CPU, on Arm or of several lanes."""
    trains = torch.is_grad_enabled() and weight.requires_grad and not torch.compiler.is_compiling()
    plain = weight.device.type == "cpu" and weight.dtype == planes.dtype and not torch.is_autocast_enabled("cpu")
    return trains and plain and torch.backends.mkldnn.is_available() and (is_arm() or torch_private.transforming())


@contextmanager
def quick_kernels(planes: Tensor) -> Iterator[None]:
    """Turn oneDNN on for a convolution; runs on Arm processors turn it off, because it slows small products down."""
    if torch.compiler.is_compiling() or planes.device.type != "cpu" or torch.backends.mkldnn.enabled:
        yield
        return
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]


def _convolve(planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with quick_kernels(planes):
        return F.conv2d(planes, weight, bias, padding=1)


def _input_gradient_of_rows(gradient: Tensor, planes: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the input: convolution with the kernel rotated by 180 degrees, channels in and out exchanged."""
    if not is_arm():
        return _gradients(gradient, planes, weight, (True, False, False))[0]
    # channels_last, like the weights and planes of the models that use this layer.
    kernel = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    with quick_kernels(gradient):
        return F.conv2d(gradient, kernel, padding=1)


def _weight_gradients_of_lane(gradient: Tensor, planes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the weights and of the bias, sums over all cells."""
    if not is_arm():
        _, of_weight, of_bias = _gradients(gradient, planes, weight, (False, True, True))
        return of_weight, of_bias
    return _window_products(gradient, planes), gradient.sum((0, 2, 3))


def _window_products(gradient: Tensor, planes: Tensor) -> Tensor:
    """Each cell's gradient times the 3x3 window around it, summed over all cells."""
    channels, height, width = planes.shape[1:]
    # Channels last, so that a window's rows are contiguous. unfold makes views; windows are copied one block at a time.
    rows = F.pad(planes.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    # (B, H, W, 3, 3, C)
    windows = rows.unfold(1, 3, 1).unfold(2, 3, 1).permute(0, 1, 2, 4, 5, 3)
    total = gradient.new_zeros(gradient.shape[1], 9 * channels)
    boards = max(1, _CELLS_AT_ONCE // (height * width))
    # Blocks are added in order, so that the same batch always gives the same bits.
    for outside, inside in zip(gradient.permute(0, 2, 3, 1).split(boards), windows.split(boards), strict=True):
        total = torch.addmm(total, outside.reshape(-1, gradient.shape[1]).t(), inside.reshape(-1, 9 * channels))
    # (C', 3, 3, C) -> (C', C, 3, 3), which is the layout of channels_last weights.
    return total.view(-1, 3, 3, channels).permute(0, 3, 1, 2)


def _gradients(gradient: Tensor, planes: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]) -> tuple[Tensor, ...]:
    """Those of the input, the weights and the bias that are wanted, by the kernels that `nn.Conv2d` uses."""
    geometry = [1, 1], [1, 1], [1, 1], False, [0, 0], 1  # Stride, padding, dilation, not transposed, no groups.
    return torch.ops.aten.convolution_backward(gradient, planes, weight, [len(weight)], *geometry, wanted)


_input_gradient = with_rule(_input_gradient_of_rows, by_row(_input_gradient_of_rows, (0, 0, None), 0))
_weight_gradients = with_rule(_weight_gradients_of_lane, by_lane(_weight_gradients_of_lane))


class _Convolution(torch.autograd.Function):
    """The convolution with its three gradients, each computed in the fastest way."""

    forward = staticmethod(_convolve)
    vmap = staticmethod(by_row(_convolve, (0, None, None), 0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        planes, weight, _ = inputs
        ctx.save_for_backward(planes, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:  # type: ignore[override]
        planes, weight = ctx.saved_tensors
        return (
            _input_gradient(gradient, planes, weight) if ctx.needs_input_grad[0] else None,
            *_weight_gradients(gradient, planes, weight),
        )
