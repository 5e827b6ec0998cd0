"""The random numbers of `noise` as GPU kernels: only the finished numbers are written to memory, not the words.

`count` numbers are drawn for each index. Programs are numbered (block of BLOCK draws of four words, index).
"""
# Kernel arguments are pointers and device scalars, for which Python has no annotations.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

from lockstep.compute.random_triton import philox

_MASK = tl.constexpr(0xFFFFFFFF)  # counters are 32-bit words
_UNIT = tl.constexpr(1.0 / (1 << 24))  # float32 represents 24 random bits exactly
_TURN = tl.constexpr(6.283185307179586)  # 2 pi
_SMALL = tl.constexpr(1.0 / 64)  # below it, five terms of the series reach float32's precision


@triton.jit
def _words(index, step, block, label, k0, k1, BLOCK: tl.constexpr):
    zero = tl.full((BLOCK,), 0, tl.int64)
    c0, c1 = zero + (tl.load(index + tl.program_id(1)) & _MASK), zero + (tl.load(step) & _MASK)
    return philox(c0, c1, zero + block, zero + label, k0.to(tl.int64), k1.to(tl.int64))


@triton.jit
def _to_unit(word):
    return (word >> 8).to(tl.float32) * _UNIT


@triton.jit
def _log_of_rest(u):
    """log(1 - u); the hardware's logarithm is too inaccurate near 1, so small u use the series."""
    series = -u * (1.0 + u * (0.5 + u * (1.0 / 3.0 + u * (0.25 + u * 0.2))))
    return tl.where(u < _SMALL, series, tl.log(1.0 - u))


@triton.jit
def _store_two_normals(out, place, count, first, second):
    radius, angle = tl.sqrt(-2.0 * _log_of_rest(_to_unit(first))), _to_unit(second) * _TURN
    tl.store(out + place, radius * tl.cos(angle), mask=place < count)
    tl.store(out + place + 1, radius * tl.sin(angle), mask=place + 1 < count)


# Not specialized: Triton would compile variants for seeds and counts that happen to be 1 or divisible by 16.
@triton.jit(do_not_specialize=["count", "label", "k0", "k1"])
def draw_normals(index, step, out, count, label, k0, k1, BLOCK: tl.constexpr):
    """Standard normal numbers by Box-Muller: every two words give two."""
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w0, w1, w2, w3 = _words(index, step, block, label, k0, k1, BLOCK)
    # int64: the offset of a row can exceed 2^31.
    out += tl.program_id(1).to(tl.int64) * count
    _store_two_normals(out, block * 4, count, w0, w1)
    _store_two_normals(out, block * 4 + 2, count, w2, w3)


@triton.jit
def _store_two_factors(out, place, count, word, least, factor):
    tl.store(out + place, tl.where((word >> 16) >= least, factor, 0.0), mask=place < count)
    tl.store(out + place + 1, tl.where((word & 0xFFFF) >= least, factor, 0.0), mask=place + 1 < count)


@triton.jit(do_not_specialize=["count", "label", "k0", "k1", "least", "factor"])
def draw_kept(index, step, out, count, label, k0, k1, least, factor, BLOCK: tl.constexpr):
    """Dropout factors from 16-bit halves of words, upper half first: `factor` if a half is at least `least`, else 0."""
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w0, w1, w2, w3 = _words(index, step, block, label, k0, k1, BLOCK)
    out += tl.program_id(1).to(tl.int64) * count
    _store_two_factors(out, block * 8, count, w0, least, factor)
    _store_two_factors(out, block * 8 + 2, count, w1, least, factor)
    _store_two_factors(out, block * 8 + 4, count, w2, least, factor)
    _store_two_factors(out, block * 8 + 6, count, w3, least, factor)
