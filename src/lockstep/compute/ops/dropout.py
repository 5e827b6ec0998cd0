"""Counter-based dropout: what is dropped depends on the sample and the step, never on the rank. B: samples.

PyTorch's dropout draws from a stream, whose position depends on what was drawn before and on which samples share a
device. Here every sample brings a random word of its own. Whether an element is dropped is a hash of that word, of the
layer and of the element's position in the sample.
"""

import zlib

import torch
from torch import Tensor, nn

# The golden ratio and the multipliers of MurmurHash3's finalizer, as signed 32-bit integers: torch has no arithmetic
# for unsigned ones, and products wrap around to the same bits.
_GOLDEN, _FIRST, _SECOND = -0x61C88647, -0x7A143595, -0x3D4D51CB


class NoiseDropout(nn.Module):
    """Drops a share of each sample's elements and scales up the others; without noise it is the identity."""

    def __init__(self, rate: float, place: str) -> None:
        """`place`: a name for this layer; layers of different names drop different elements."""
        super().__init__()
        self._rate, self._salt = rate, salt_of(place)

    def forward(self, value: Tensor, noise: Tensor | None) -> Tensor:
        """Set some of value (B, ...) to 0; noise (B,) int64: a random 32-bit word for each sample, None to evaluate."""
        if noise is None or not self._rate:
            return value
        cell = torch.arange(value[0].numel(), dtype=torch.int32, device=value.device).view(value.shape[1:])
        keep = bernoulli(noise.view(-1, *[1] * (value.dim() - 1)), cell, self._salt, 1.0 - self._rate)
        return value * (keep.to(value.dtype) * (1.0 / (1.0 - self._rate)))


def salt_of(place: str) -> int:
    """A 32-bit hash of a name, in the range of int32. Computed outside of forward passes: dynamo cannot trace it."""
    return zlib.crc32(place.encode()) - (1 << 31)


def bernoulli(noise: Tensor, number: Tensor, salt: int, probability: float) -> Tensor:
    """True with this probability, from noise (random 32-bit words in int64) and number (int32), broadcast together.

    `salt`: an int32; other salts give other results.
    """
    # Words from 2^31 on become negative: the same 32 bits in an int32.
    word = (noise - ((noise >> 31) << 32)).to(torch.int32) ^ salt
    # The golden ratio spreads consecutive numbers over all bits. The masks make the arithmetic shifts logical ones.
    mixed = word ^ (number * _GOLDEN)
    mixed = (mixed ^ ((mixed >> 16) & 0xFFFF)) * _FIRST
    mixed = (mixed ^ ((mixed >> 13) & 0x7FFFF)) * _SECOND
    mixed = mixed ^ ((mixed >> 16) & 0xFFFF)
    # `mixed` is uniform over the signed integers, so the threshold is shifted by 2^31 as well.
    return mixed <= int(probability * ((1 << 32) - 1)) - (1 << 31)
