"""Counter-based random numbers: a draw is a pure function of (seed, purpose, index, step), on whichever rank.

The generator has no state, so there is nothing to save or restore, and ranks cannot get out of step. It is
Philox4x32-10 (Salmon et al., SC 2011): the counter's words are (index, step, draw, purpose), the key is the seed.
"""

import zlib

import torch
from torch import Tensor

from lockstep.compute.kernels import kernels_usable
from lockstep.compute.philox import MULTIPLIERS, ROUNDS, WEYL
from lockstep.errors import RunFailed, UserError

_MASK = 0xFFFFFFFF
# The axes that the GPU kernel takes, and the elements that one program of it computes.
_KERNEL_AXES, _KERNEL_BLOCK = 4, 256
_WRAPS = "a random number counter has reached 2^32, from where the numbers would repeat; start a new run with another "
_WRAPS += "seed and more environments"


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox4x32-10: four 32-bit words (stored in int64, broadcast together) to four random 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # The product of two 32-bit words wraps into int64; the mask after the shift recovers its unsigned upper half.
        even, odd = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0 = ((odd >> 32) & _MASK) ^ c1 ^ k0
        c1 = odd & _MASK
        c2 = ((even >> 32) & _MASK) ^ c3 ^ k1
        c3 = even & _MASK
        k0, k1 = (k0 + WEYL[0]) & _MASK, (k1 + WEYL[1]) & _MASK
    return c0, c1, c2, c3


def label_of(purpose: str) -> int:
    """The counter word of a purpose, so that different purposes draw different numbers."""
    # Not Python's hash, which differs between processes.
    return zlib.crc32(purpose.encode())


def key_of(seed: int) -> tuple[int, int]:
    """The two key words of a seed."""
    if not 0 <= seed < 1 << 64:
        raise UserError(f"seed {seed}: would share its random numbers with another seed; allowed: from 0 to 2^64 - 1")
    return seed & _MASK, seed >> 32


def random_words(
    seed: int, purpose: str, index: Tensor, step: Tensor | int, draw: Tensor | int = 0
) -> tuple[Tensor, ...]:
    """Four random 32-bit words (int64) for every element of index, step and draw broadcast together."""

    def word(value: Tensor | int) -> Tensor:
        if isinstance(value, Tensor):
            _refuse_large(value)
            return value.to(index.device, torch.int64)
        if not 0 <= value <= _MASK:
            raise RunFailed(_WRAPS)
        # Created on the device: a copy from the host is not allowed while a graph is captured.
        return torch.full((), value, dtype=torch.int64, device=index.device)

    counter = word(index), word(step), word(draw)
    shape = torch.broadcast_shapes(*(part.shape for part in counter))
    if kernels_usable(index.device) and len(shape) <= _KERNEL_AXES:
        return _words_by_kernel(seed, purpose, *(part.expand(shape) for part in counter)).unbind(-1)
    # Index, step and draw are masked because GPU tensors are not range-checked (see `_refuse_large`). Only one of the
    # words needs the full shape: the others broadcast within the first rounds.
    c0, c1, c2 = (part & _MASK for part in counter)
    return philox((c0.expand(shape), c1, c2, word(label_of(purpose))), key_of(seed))


def _refuse_large(counter: Tensor) -> None:
    """Stop the run before a counter wraps around. Only on the CPU: a GPU would have to be waited for.

    There the limits on the configuration keep counters in range.
    """
    checks = counter.device.type == "cpu" and counter.dtype == torch.int64 and not torch.compiler.is_compiling()
    if checks and bool((counter >> 32).any()):
        raise RunFailed(_WRAPS)


def _words_by_kernel(seed: int, purpose: str, *counter: Tensor) -> Tensor:
    """The same with one GPU kernel, for counter parts of one shape (...): (..., 4)."""
    # Imported here: Triton is missing on machines without a GPU.
    from lockstep.compute import random_triton

    shape = counter[0].shape
    out = torch.empty(*shape, 4, dtype=torch.int64, device=counter[0].device)
    count, axes = shape.numel(), (1,) * (_KERNEL_AXES - len(shape))
    if count:
        # Missing axes have size 1. The kernel takes the inner three sizes, and strides instead of dense copies: most
        # parts are broadcast, with a stride of 0.
        _, *inner = (*axes, *shape)
        strides = [stride for part in counter for stride in (*axes, *part.stride())]
        random_triton.fill_words[(-(-count // _KERNEL_BLOCK),)](
            *counter, out, count, *inner, label_of(purpose), *key_of(seed), *strides, BLOCK=_KERNEL_BLOCK
        )
    return out


def kernel_trouble(device: torch.device) -> str | None:
    """Try the kernel on this device: the problem in one line, or None if it draws the same numbers as the host."""
    # A word of 2^31 and a seed above 2^32, where a wrong integer width would show.
    counter = torch.broadcast_tensors(torch.arange(4)[:, None], torch.tensor(2**31), torch.arange(3))
    expected = torch.stack(random_words(2**40 + 1, "trial", *counter), -1)
    try:
        found = _words_by_kernel(2**40 + 1, "trial", *(part.to(device) for part in counter)).cpu()
    except Exception as error:  # from Triton, its C compiler or the driver: whatever it is, the kernel cannot be used
        return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
    return None if torch.equal(found, expected) else "it draws other numbers than the host"


def to_unit(word: Tensor) -> Tensor:
    """A 32-bit word as a float32 in [0, 1)."""
    # The upper 24 bits, which float32 represents exactly: rounding all 32 could give 1.0.
    return (word >> 8).to(torch.float32) * (1.0 / (1 << 24))


def uniform(seed: int, purpose: str, index: Tensor, step: Tensor | int, draw: Tensor | int = 0) -> Tensor:
    """Float32 in [0, 1) for every element of index, step and draw broadcast together."""
    return to_unit(random_words(seed, purpose, index, step, draw)[0])


def normal(seed: int, purpose: str, index: Tensor, step: Tensor | int, draw: Tensor | int = 0) -> Tensor:
    """Standard normal float32 (Box-Muller) for every element of index, step and draw broadcast together."""
    first, second, _, _ = random_words(seed, purpose, index, step, draw)
    # log1p(-u) = log(1 - u) with u in [0, 1): never the logarithm of zero.
    radius = torch.sqrt(-2.0 * torch.log1p(-to_unit(first)))
    return radius * torch.cos(2.0 * torch.pi * to_unit(second))


def permutations(seed: int, purpose: str, index: Tensor, step: Tensor | int, length: int) -> Tensor:
    """One random permutation of 0..length-1 for each element of index: (..., len(index), length) int64.

    step: one for all, or a tensor (..., 1, 1) of several.
    """
    draws = torch.arange(length, device=index.device)
    high, low, _, _ = random_words(seed, purpose, index[:, None], step, draws[None, :])
    # 63-bit sort keys. Equal ones (probability 10^-11 for 10,000 items) keep their order, because the sort is stable.
    return torch.argsort((high << 31) | (low >> 1), dim=-1, stable=True)


def derive_seed(seed: int, purpose: str) -> int:
    """A 63-bit seed for libraries with generators of their own (network initialization, a MuJoCo task)."""
    index = torch.zeros((), dtype=torch.int64)
    high, low, _, _ = random_words(seed, purpose, index, 0)
    # 63 bits, because some libraries take a signed 64-bit seed.
    return int(high) << 31 | int(low) >> 1
