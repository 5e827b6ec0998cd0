"""A layer's norm and activation as one GPU kernel, forwards and backwards; what is between them stays on the chip.

A program looks after some rows of a member of an ensemble. R: rows of each member, D: features, WIDE: a power of two
from D on, ROWS: how many are looked after at once, SIMPLEX: features of a distribution, or 0 for Mish, DROPS: whether
some features are left out.
"""
# Pointers and numbers on the device have no types that a reader of Python would know.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

_LARGE = tl.constexpr(20.0)
"""See `activation`."""
_FAR = tl.constexpr(-1e30)


@triton.jit
def _weights_of(weight, member, column, D: tl.constexpr):
    return tl.load(weight + member * D + column, mask=column < D, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _normed(signal, kept, place, inside, bias, D: tl.constexpr, EPS: tl.constexpr, DROPS: tl.constexpr):
    """The features of some rows with mean 0 and deviation 1, and one over what the deviation was."""
    value = tl.load(signal + place, mask=inside, other=0.0).to(tl.float32) + bias
    if DROPS:
        value = value * tl.load(kept + place, mask=inside, other=0.0)
    away = tl.where(inside, value - (tl.sum(tl.where(inside, value, 0.0), 1) / D)[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(away * away, 1) / D + EPS)
    return away * rate[:, None], rate[:, None]


@triton.jit
def _mish_parts(value):
    """What Mish multiplies a value with, and its slope there."""
    power = tl.exp(tl.minimum(value, _LARGE))
    n = power * (power + 2.0)
    part = 1.0 / (n + 2.0)
    weight = n * part
    return weight, weight + value * (4.0 * (power + 1.0) * power * part * part)


@triton.jit
def _simplices(value, inside, ROWS: tl.constexpr, WIDE: tl.constexpr, SIMPLEX: tl.constexpr):
    """Every SIMPLEX features in a row as a distribution: (ROWS, WIDE / SIMPLEX, SIMPLEX)."""
    groups = tl.reshape(tl.where(inside, value, _FAR), (ROWS, WIDE // SIMPLEX, SIMPLEX))
    raised = tl.exp(groups - tl.max(groups, 2)[:, :, None])
    return raised / tl.sum(raised, 2)[:, :, None]


@triton.jit(do_not_specialize=["R"])
def forward(
    signal, bias, scale, shift, kept, out,
    R, D: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr, SIMPLEX: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    """A program is (some rows, member)."""
    member, column = tl.program_id(1).to(tl.int64), tl.arange(0, WIDE)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = (member * R + row)[:, None] * D + column[None, :]
    inside = (row < R)[:, None] & (column < D)[None, :]
    normed, _ = _normed(signal, kept, place, inside, _weights_of(bias, member, column, D), D, EPS, DROPS)
    value = normed * _weights_of(scale, member, column, D) + _weights_of(shift, member, column, D)
    if SIMPLEX:
        result = tl.reshape(_simplices(value, inside, ROWS, WIDE, SIMPLEX), (ROWS, WIDE))
    else:
        weight, _ = _mish_parts(value)
        result = value * weight
    tl.store(out + place, result, mask=inside)


@triton.jit(do_not_specialize=["R", "TILES"])
def backward(
    gradient, signal, bias, scale, shift, kept, to_signal, to_weights,
    R, TILES, D: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr, SIMPLEX: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    """A program is (TILES times some rows, member); it leaves its part of the gradients of bias, scale and shift."""
    member, column = tl.program_id(1).to(tl.int64), tl.arange(0, WIDE)
    b, s = _weights_of(bias, member, column, D), _weights_of(scale, member, column, D)
    h = _weights_of(shift, member, column, D)
    bias_sum = tl.zeros((WIDE,), tl.float32)
    scale_sum, shift_sum = bias_sum, bias_sum
    for tile in range(TILES):
        row = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        place = (member * R + row)[:, None] * D + column[None, :]
        inside = (row < R)[:, None] & (column < D)[None, :]
        normed, rate = _normed(signal, kept, place, inside, b, D, EPS, DROPS)
        value = normed * s + h
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        if SIMPLEX:
            part = _simplices(value, inside, ROWS, WIDE, SIMPLEX)
            groups = tl.reshape(g, (ROWS, WIDE // SIMPLEX, SIMPLEX))
            g = tl.reshape(part * (groups - tl.sum(part * groups, 2)[:, :, None]), (ROWS, WIDE))
        else:
            _, slope = _mish_parts(value)
            g = g * slope
        to_normed = g * s
        mean, along = tl.sum(to_normed, 1) / D, tl.sum(to_normed * normed, 1) / D
        found = tl.where(inside, rate * (to_normed - mean[:, None] - normed * along[:, None]), 0.0)
        if DROPS:
            found = found * tl.load(kept + place, mask=inside, other=0.0)
        tl.store(to_signal + place, found, mask=inside)
        bias_sum += tl.sum(found, 0)
        scale_sum += tl.sum(g * normed, 0)
        shift_sum += tl.sum(g, 0)
    part = to_weights + (member * tl.num_programs(0) + tl.program_id(0)) * D + column
    apart = tl.num_programs(0) * tl.num_programs(1) * D
    tl.store(part, bias_sum, mask=column < D)
    tl.store(part + apart, scale_sum, mask=column < D)
    tl.store(part + 2 * apart, shift_sum, mask=column < D)
