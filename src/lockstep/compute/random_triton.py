"""The generator of `random` as a GPU kernel: one launch, where its rounds one by one are a hundred and more."""
# Pointers and numbers on the device have no types that a reader of Python would know.
# ruff: noqa: ANN001, ANN201, N803

import triton
import triton.language as tl

from lockstep.compute.random import MULTIPLIERS, ROUNDS, WEYL

_MASK = tl.constexpr(0xFFFFFFFF)
_MULTIPLIER_0, _MULTIPLIER_1 = tl.constexpr(MULTIPLIERS[0]), tl.constexpr(MULTIPLIERS[1])
_WEYL_0, _WEYL_1 = tl.constexpr(WEYL[0]), tl.constexpr(WEYL[1])
_ROUNDS = tl.constexpr(ROUNDS)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words of four words and a key, all of them 32-bit words held in int64."""
    for _ in tl.static_range(_ROUNDS):
        even, odd = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0 = ((odd >> 32) & _MASK) ^ c1 ^ k0
        c1 = odd & _MASK
        c2 = ((even >> 32) & _MASK) ^ c3 ^ k1
        c3 = even & _MASK
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


_STRIDES = [f"{part}{axis}" for part in "xyz" for axis in "ijkl"]


@triton.jit(do_not_specialize=["count", "J", "K", "L", "label", "k0", "k1", *_STRIDES])
def fill_words(
    index, step, draw, out, count, J, K, L, label, k0, k1,
    xi, xj, xk, xl, yi, yj, yk, yl, zi, zj, zk, zl, BLOCK: tl.constexpr,
):  # fmt: skip
    """Four words for each of `count` elements of (I, J, K, L); the counter's parts have a stride for each axis."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = number < count
    row = number // L
    i, j, k, n = row // K // J, row // K % J, row % K, number % L
    c0 = tl.load(index + i * xi + j * xj + k * xk + n * xl, mask=inside, other=0) & _MASK
    c1 = tl.load(step + i * yi + j * yj + k * yk + n * yl, mask=inside, other=0) & _MASK
    c2 = tl.load(draw + i * zi + j * zj + k * zk + n * zl, mask=inside, other=0) & _MASK
    c3 = tl.full((BLOCK,), 0, tl.int64) + label
    w0, w1, w2, w3 = philox(c0, c1, c2, c3, k0.to(tl.int64), k1.to(tl.int64))
    place = out + number.to(tl.int64) * 4
    tl.store(place, w0, mask=inside)
    tl.store(place + 1, w1, mask=inside)
    tl.store(place + 2, w2, mask=inside)
    tl.store(place + 3, w3, mask=inside)
