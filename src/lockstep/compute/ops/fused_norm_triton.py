"""A layer's norm and activation as one GPU kernel for each direction; intermediate values stay in registers.

A program computes some rows of one member of an ensemble. R: rows per member, D: features, WIDE: the next power of two
of D, ROWS: rows per tile, SIMPLEX: features per distribution, or 0 for Mish, DROPS: whether there is dropout.
"""
# Triton's pointers and device scalars have no Python types to annotate, and constants are named in capitals.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

# As in `activation`: Mish is the identity above.
_LARGE = tl.constexpr(20.0)
# Stands for minus infinity in the softmax of columns beyond D: a group of infinities alone would give NaN.
_FAR = tl.constexpr(-1e30)


@triton.jit
def _weights_of(weight, member, column, D: tl.constexpr):
    return tl.load(weight + member * D + column, mask=column < D, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _normed(signal, kept, place, inside, bias, D: tl.constexpr, EPS: tl.constexpr, DROPS: tl.constexpr):
    """The features of some rows with mean 0 and standard deviation 1, and the reciprocal standard deviations."""
    # In fp32 whatever the signal's dtype: sums of squares lose too much in bf16.
    value = tl.load(signal + place, mask=inside, other=0.0).to(tl.float32) + bias
    if DROPS:
        value = value * tl.load(kept + place, mask=inside, other=0.0)
    # Columns beyond D are masked out of every sum; the divisor is D, not WIDE.
    away = tl.where(inside, value - (tl.sum(tl.where(inside, value, 0.0), 1) / D)[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(away * away, 1) / D + EPS)
    return away * rate[:, None], rate[:, None]


@triton.jit
def _mish_parts(value):
    """The factor of Mish (Mish(x) = x * factor) and its derivative at a value."""
    # The formulas of `activation`.
    power = tl.exp(tl.minimum(value, _LARGE))
    n = power * (power + 2.0)
    part = 1.0 / (n + 2.0)
    weight = n * part
    return weight, weight + value * (4.0 * (power + 1.0) * power * part * part)


@triton.jit
def _simplices(value, inside, ROWS: tl.constexpr, WIDE: tl.constexpr, SIMPLEX: tl.constexpr):
    """The softmax of every SIMPLEX features of a row: (ROWS, WIDE / SIMPLEX, SIMPLEX)."""
    groups = tl.reshape(tl.where(inside, value, _FAR), (ROWS, WIDE // SIMPLEX, SIMPLEX))
    # Less the maximum, so that no exponential overflows.
    raised = tl.exp(groups - tl.max(groups, 2)[:, :, None])
    return raised / tl.sum(raised, 2)[:, :, None]


# R changes with the batch; a variant compiled for each of its divisibilities would make runs wait.
@triton.jit(do_not_specialize=["R"])
def forward(
    signal, bias, scale, shift, kept, out,
    R, D: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr, SIMPLEX: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    """The programs' grid is (tiles of ROWS rows, members)."""
    # int64: offsets into large ensembles can exceed 2^31.
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
    """The programs' grid is (groups of TILES tiles, members); each writes partial sums for bias, scale and shift."""
    member, column = tl.program_id(1).to(tl.int64), tl.arange(0, WIDE)
    b, s = _weights_of(bias, member, column, D), _weights_of(scale, member, column, D)
    h = _weights_of(shift, member, column, D)
    bias_sum = tl.zeros((WIDE,), tl.float32)
    scale_sum, shift_sum = bias_sum, bias_sum
    for tile in range(TILES):
        row = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        place = (member * R + row)[:, None] * D + column[None, :]
        inside = (row < R)[:, None] & (column < D)[None, :]
        # Recomputed from the signal instead of saved: cheaper than the memory traffic.
        normed, rate = _normed(signal, kept, place, inside, b, D, EPS, DROPS)
        value = normed * s + h
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        if SIMPLEX:
            # The gradient through a softmax p: p * (g - sum(p * g)).
            part = _simplices(value, inside, ROWS, WIDE, SIMPLEX)
            groups = tl.reshape(g, (ROWS, WIDE // SIMPLEX, SIMPLEX))
            g = tl.reshape(part * (groups - tl.sum(part * groups, 2)[:, :, None]), (ROWS, WIDE))
        else:
            _, slope = _mish_parts(value)
            g = g * slope
        # The gradient through the norm, less its components along the mean and along the normed features.
        to_normed = g * s
        mean, along = tl.sum(to_normed, 1) / D, tl.sum(to_normed * normed, 1) / D
        found = tl.where(inside, rate * (to_normed - mean[:, None] - normed * along[:, None]), 0.0)
        if DROPS:
            found = found * tl.load(kept + place, mask=inside, other=0.0)
        tl.store(to_signal + place, found, mask=inside)
        bias_sum += tl.sum(found, 0)
        scale_sum += tl.sum(g * normed, 0)
        shift_sum += tl.sum(g, 0)
    # to_weights is (3, members, programs, D): this program's row in each of the three.
    part = to_weights + (member * tl.num_programs(0) + tl.program_id(0)) * D + column
    apart = tl.num_programs(0) * tl.num_programs(1) * D
    tl.store(part, bias_sum, mask=column < D)
    tl.store(part + apart, scale_sum, mask=column < D)
    tl.store(part + 2 * apart, shift_sum, mask=column < D)
