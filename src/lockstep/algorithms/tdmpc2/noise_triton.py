"""the random numbers of `noise` as GPU kernels: words become numbers before they leave the chip.

`count` numbers are drawn for each index; a program is (BLOCK times four words, index).
"""
# Kernel arguments are pointers and device scalars, for which Python has no annotations.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

from lockstep.compute.random_triton import philox

_MASK = tl.constexpr(0xFFFFFFFF)
_UNIT = tl.constexpr(1.0 / (1 << 24))
_TURN = tl.constexpr(6.283185307179586)
_SMALL = tl.constexpr(1.0 / 64)


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
    """The logarithm of 1 - u; the hardware's own is too coarse near 1."""
    series = -u * (1.0 + u * (0.5 + u * (1.0 / 3.0 + u * (0.25 + u * 0.2))))
    return tl.where(u < _SMALL, series, tl.log(1.0 - u))


@triton.jit
def _store_two_normals(out, place, count, first, second):
    radius, angle = tl.sqrt(-2.0 * _log_of_rest(_to_unit(first))), _to_unit(second) * _TURN
    tl.store(out + place, radius * tl.cos(angle), mask=place < count)
    tl.store(out + place + 1, radius * tl.sin(angle), mask=place + 1 < count)


@triton.jit(do_not_specialize=["count", "label", "k0", "k1"])
def draw_normals(index, step, out, count, label, k0, k1, BLOCK: tl.constexpr):
    """Of every two words the sides of an angle."""
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w0, w1, w2, w3 = _words(index, step, block, label, k0, k1, BLOCK)
    out += tl.program_id(1).to(tl.int64) * count
    _store_two_normals(out, block * 4, count, w0, w1)
    _store_two_normals(out, block * 4 + 2, count, w2, w3)


@triton.jit
def _store_two_factors(out, place, count, word, least, factor):
    tl.store(out + place, tl.where((word >> 16) >= least, factor, 0.0), mask=place < count)
    tl.store(out + place + 1, tl.where((word & 0xFFFF) >= least, factor, 0.0), mask=place + 1 < count)


@triton.jit(do_not_specialize=["count", "label", "k0", "k1", "least", "factor"])
def draw_kept(index, step, out, count, label, k0, k1, least, factor, BLOCK: tl.constexpr):
    """Of each half of a word the factor where it is `least` or more, else zero: the upper half, then the lower one."""
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w0, w1, w2, w3 = _words(index, step, block, label, k0, k1, BLOCK)
    out += tl.program_id(1).to(tl.int64) * count
    _store_two_factors(out, block * 8, count, w0, least, factor)
    _store_two_factors(out, block * 8 + 2, count, w1, least, factor)
    _store_two_factors(out, block * 8 + 4, count, w2, least, factor)
    _store_two_factors(out, block * 8 + 6, count, w3, least, factor)
