"""Counter-based random numbers in bulk, like compute.random, but using all four words of each draw.

On a GPU the normal numbers of an update, its dropout factors and the normal numbers of a plan take one kernel each.
"""

from typing import Any

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.compute.kernels import kernels_usable

_BLOCK = 256
"""Philox draws, of four words each, that one program of a kernel computes."""


def normals(seed: int, purpose: str, index: Tensor, step: Tensor | int, count: int) -> Tensor:
    """Standard normal numbers, `count` for each element of index: (..., count) float32."""
    # Kernel and eager code agree to rounding, not to the bit: log, sin and cos differ between devices.
    if _kernel_fits(index, step):
        from lockstep.algorithms.tdmpc2.noise_triton import draw_normals

        return _by_kernel(draw_normals, 4, seed, purpose, index, step, count)
    words = _words(seed, purpose, index, step, -(-count // 4))
    # Box-Muller: two uniform numbers give two normal ones. log1p(-u), since u can be 0 but never 1.
    first, second = words.unflatten(-1, (-1, 2)).unbind(-1)
    radius = torch.sqrt(-2.0 * torch.log1p(-random.to_unit(first)))
    angle = 2.0 * torch.pi * random.to_unit(second)
    return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), -1).flatten(-2)[..., :count]


def uniforms(seed: int, purpose: str, index: Tensor, step: Tensor | int, count: int) -> Tensor:
    """Numbers in [0, 1), `count` for each element of index: (..., count) float32."""
    return random.to_unit(_words(seed, purpose, index, step, -(-count // 4)))[..., :count]


def kept(seed: int, purpose: str, index: Tensor, step: Tensor | int, count: int, dropout: float) -> Tensor:
    """Dropout factors, `count` per element of index: zero with that probability (to 1 in 65,536), else 1 / (1 - it)."""
    least, factor = round(dropout * 65536), 1.0 / (1.0 - dropout)
    if _kernel_fits(index, step):
        from lockstep.algorithms.tdmpc2.noise_triton import draw_kept

        return _by_kernel(draw_kept, 8, seed, purpose, index, step, count, least, factor)
    words = _words(seed, purpose, index, step, -(-count // 8))
    # 16 bits are precise enough for a probability, so each 32-bit word gives two factors.
    halves = torch.stack((words >> 16, words & 0xFFFF), -1).flatten(-2)[..., :count]
    return (halves >= least).to(torch.float32) * factor


def pair(seed: int, purpose: str, step: Tensor, members: int) -> Tensor:
    """Two different members (or one twice if there is only one), for each element of step: (..., 2).

    A function of the step alone, so that all ranks use the same two value functions.
    """
    index = torch.zeros((), dtype=torch.int64, device=step.device)
    first, second, _, _ = random.random_words(seed, purpose, index, step)
    # Multiply and shift: an integer below the bound, computed in integers and therefore equal on every device.
    one = (first * members) >> 32
    # Drawn from one fewer, then moved past `one`: the two differ, and all pairs are equally likely.
    other = (second * max(members - 1, 1)) >> 32
    return torch.stack((one, (other + (other >= one)) % members), -1)


def _words(seed: int, purpose: str, index: Tensor, step: Tensor | int, blocks: int) -> Tensor:
    """(..., 4 x blocks) random words."""
    block = torch.arange(blocks, device=index.device)
    # A step per element of index needs the axis of the blocks too; a scalar broadcasts by itself.
    when = step.unsqueeze(-1) if isinstance(step, Tensor) and step.ndim else step
    return torch.stack(random.random_words(seed, purpose, index.unsqueeze(-1), when, block), -1).flatten(-2)


def _kernel_fits(index: Tensor, step: Tensor | int) -> bool:
    """Whether a kernel can draw these numbers: it reads a contiguous index (E,) and one step, both on the GPU."""
    together = isinstance(step, Tensor) and step.ndim == 0 and step.device == index.device
    return kernels_usable(index.device) and together and index.ndim == 1 and index.is_contiguous()


def _by_kernel(
    kernel: Any, each: int, seed: int, purpose: str, index: Tensor, step: Tensor | int, count: int, *numbers: float
) -> Tensor:
    """(len(index), count) numbers from one kernel launch; four words give `each` numbers."""
    out = torch.empty(len(index), count, device=index.device)
    grid = -(-count // (each * _BLOCK)), len(index)
    kernel[grid](index, step, out, count, random.label_of(purpose), *random.key_of(seed), *numbers, BLOCK=_BLOCK)
    return out
