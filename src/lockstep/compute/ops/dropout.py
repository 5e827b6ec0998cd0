"""Dropout by counter: what is left out depends on the sample and the moment, never on who computes it. B: samples.

PyTorch's dropout draws from a stream, whose position depends on what was drawn before and on which samples share a
device. Here every sample brings a random word of its own, and an element's fate is a hash of that word, of the place
in the network and of the element's position in the sample.
"""

import zlib

import torch
from torch import Tensor, nn

# The finaliser of MurmurHash3 and the golden ratio, as signed 32-bit numbers.
_GOLDEN, _FIRST, _SECOND = -0x61C88647, -0x7A143595, -0x3D4D51CB


class CounterDropout(nn.Module):
    """Leaves out a share of each sample's elements and enlarges the others; with no noise it changes nothing."""

    def __init__(self, rate: float, place: str) -> None:
        """`place`: a name for where in the network this is; two places leave out different elements."""
        super().__init__()
        self._rate, self._place = rate, place

    def forward(self, value: Tensor, noise: Tensor | None) -> Tensor:
        """Some of value (B, ...) become 0; noise (B,) int64 holds one random 32-bit word for each sample."""
        if noise is None or not self._rate:
            return value
        cell = torch.arange(value[0].numel(), dtype=torch.int32, device=value.device).view(value.shape[1:])
        keep = chance(noise.view(-1, *[1] * (value.dim() - 1)), cell, self._place, 1.0 - self._rate)
        return value * (keep.to(value.dtype) * (1.0 / (1.0 - self._rate)))


def chance(noise: Tensor, number: Tensor, place: str, probability: float) -> Tensor:
    """True with a probability, by noise (random 32-bit words in int64) and number (int32) broadcast together."""
    salt = zlib.crc32(place.encode()) - (1 << 31)
    # Words from 2^31 on become negative numbers: the same 32 bits.
    word = (noise - ((noise >> 31) << 32)).to(torch.int32) ^ salt
    mixed = word ^ (number * _GOLDEN)
    mixed = (mixed ^ ((mixed >> 16) & 0xFFFF)) * _FIRST
    mixed = (mixed ^ ((mixed >> 13) & 0x7FFFF)) * _SECOND
    mixed = mixed ^ ((mixed >> 16) & 0xFFFF)
    return mixed <= int(probability * ((1 << 32) - 1)) - (1 << 31)
