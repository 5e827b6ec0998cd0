"""Image observations: the official program's encoder and its random shifts. C: channels, S: pixels of a side."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.algorithms.tdmpc2.model.layers import simplices
from lockstep.algorithms.tdmpc2.model.sizes import IMAGE_CELLS
from lockstep.compute.ops.convolution import quick_kernels

_KERNELS = ((7, 2), (5, 2), (3, 2), (3, 1))
"""Kernel and stride of each convolution: of a side of 64 pixels 4 cells are left."""
FARTHEST = 3
"""Most pixels by which an image is shifted, in either direction of each axis."""


class ImageEncoder(nn.Sequential):
    """Four convolutions and SimNorm: images (..., C, 64, 64) of bytes to latent states (..., latent)."""

    def __init__(self, inputs: int, channels: int, latent: int, simplex: int) -> None:
        """`inputs`: channels of an image. `channels`: of the convolutions, but for the last, whose output is latent."""
        widths = (inputs, channels, channels, channels, latent // IMAGE_CELLS)
        pairs = zip(pairwise(widths), _KERNELS, strict=True)
        super().__init__(*(nn.Conv2d(width, following, *kernel) for (width, following), kernel in pairs))
        self._simplex = simplex

    def forward(self, images: Tensor) -> Tensor:
        """(..., C, 64, 64) -> (..., latent)."""
        signal = images.flatten(0, -4).float() / 255.0 - 0.5
        with quick_kernels(signal):
            for number, layer in enumerate(self):
                signal = layer(torch.relu(signal) if number else signal)
        return simplices(signal.flatten(1), self._simplex).unflatten(0, images.shape[:-3])


def shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Images (B, C, S, S), each moved by (B,) whole pixels; the pixels at the edge are repeated into what is left."""
    side = torch.arange(images.shape[-1], device=images.device)
    rows, columns = ((side - by[:, None]).clamp(0, len(side) - 1) for by in (down, right))
    # Expanding copies nothing: an index is shared by all channels and by the other axis.
    images = images.gather(2, rows[:, None, :, None].expand_as(images))
    return images.gather(3, columns[:, None, None, :].expand_as(images))
