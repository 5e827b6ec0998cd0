"""The generator of `random` as a GPU kernel: one launch instead of more than a hundred for the rounds in eager mode."""
# Triton's pointers and device scalars have no Python types to annotate, and constants are named in capitals.
# ruff: noqa: ANN001, ANN201, N803

import triton
import triton.language as tl

from lockstep.compute.philox import MULTIPLIERS, ROUNDS, WEYL

_MASK = tl.constexpr(0xFFFFFFFF)
_MULTIPLIER_0, _MULTIPLIER_1 = tl.constexpr(MULTIPLIERS[0]), tl.constexpr(MULTIPLIERS[1])
_WEYL_0, _WEYL_1 = tl.constexpr(WEYL[0]), tl.constexpr(WEYL[1])
_ROUNDS = tl.constexpr(ROUNDS)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words from a counter of four words and a key of two: 32-bit words, stored in int64."""
    # Step by step as in `random.philox`: both must give the same bits.
    for _ in tl.static_range(_ROUNDS):
        even, odd = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0 = ((odd >> 32) & _MASK) ^ c1 ^ k0
        c1 = odd & _MASK
        c2 = ((even >> 32) & _MASK) ^ c3 ^ k1
        c3 = even & _MASK
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


# x: index, y: step, z: draw; one stride for each of the axes i, j, k, l.
_STRIDES = [f"{part}{axis}" for part in "xyz" for axis in "ijkl"]


# Triton would compile a variant for every argument that is 1 or divisible by 16. Sizes and keys vary from call to call,
# so none of them is specialized.
@triton.jit(do_not_specialize=["count", "J", "K", "L", "label", "k0", "k1", *_STRIDES])
def fill_words(
    index, step, draw, out, count, J, K, L, label, k0, k1,
    xi, xj, xk, xl, yi, yj, yk, yl, zi, zj, zk, zl, BLOCK: tl.constexpr,
):  # fmt: skip
    """Four words for each of `count` elements of (I, J, K, L); each part of the counter has a stride per axis."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = number < count  # the last block may reach beyond the end
    # The element's position on each axis; `out` is dense, so `number` is its place there.
    row = number // L
    i, j, k, n = row // K // J, row // K % J, row % K, number % L
    c0 = tl.load(index + i * xi + j * xj + k * xk + n * xl, mask=inside, other=0) & _MASK
    c1 = tl.load(step + i * yi + j * yj + k * yk + n * yl, mask=inside, other=0) & _MASK
    c2 = tl.load(draw + i * zi + j * zj + k * zk + n * zl, mask=inside, other=0) & _MASK
    c3 = tl.full((BLOCK,), 0, tl.int64) + label
    w0, w1, w2, w3 = philox(c0, c1, c2, c3, k0.to(tl.int64), k1.to(tl.int64))
    # int64, because four times the number can exceed 2^31.
    place = out + number.to(tl.int64) * 4
    tl.store(place, w0, mask=inside)
    tl.store(place + 1, w1, mask=inside)
    tl.store(place + 2, w2, mask=inside)
    tl.store(place + 3, w3, mask=inside)
