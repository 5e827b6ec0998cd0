"""One step of an LSTM's recurrence as one GPU kernel for each direction; the matrix product between steps is torch's.

Every element of (B, H) is computed by one program alone, so bits do not depend on the order of programs. T: steps,
t: the step, B: sequences, H: hidden units, BLOCK: elements of a program. Gates are stacked along the last axis: output,
input, forget, candidate. Arithmetic is in fp32, whatever the dtype of the products.
"""
# Triton's pointers and device scalars have no Python types to annotate, and constants are named in capitals.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

_for_any_batch = triton.jit(do_not_specialize=["t", "T", "B"])
"""Compiled once for each H and dtype: a variant for each step or batch would make runs wait."""
# tanh x = x + x * s * (a + s * (b + s * (c + s * d))) with s = x^2, fitted by us for |x| < _SMALL.
_SMALL = tl.constexpr(0.55)
_A = tl.constexpr(-0.33332947)
_B = tl.constexpr(0.13320725)
_C = tl.constexpr(-0.05267181)
_D = tl.constexpr(0.01643758)


@triton.jit
def _tanh(x):
    """Correct to 3e-7 of its value. Triton has no tanh of its own, and libdevice's is not in its interpreter."""
    size, square = tl.abs(x), x * x
    # Near 0 this subtracts nearly equal numbers, which leaves few correct digits: hence the polynomial there.
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    near = x + x * (square * (_A + square * (_B + square * (_C + square * _D))))
    return tl.where(size < _SMALL, near, tl.where(x < 0.0, -far, far))


@triton.jit
def _elements(B, H: tl.constexpr, BLOCK: tl.constexpr):
    """A program's elements: their rows, places in (B, H) and in (B, 4H), and which exist."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = place // H
    return row, place, row * (4 * H) + place % H, row < B


@triton.jit
def _read(tensor, place, inside):
    return tl.load(tensor + place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _cells_before(first_cells, every_cell, start, t, B, place, inside, H: tl.constexpr):
    """The cells after the step before this one, or those that the sequences began with."""
    return _read(first_cells, place, inside) if t == 0 else _read(every_cell + (start - B) * H, place, inside)


@_for_any_batch
def forward(
    projected, product, first_cells, keep, gates, every_cell, squashed, outputs, entering,
    t, T, B, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The step's gates, cells, their tanh and outputs, and the hidden state that enters the next step's product."""
    row, place, wide, inside = _elements(B, H, BLOCK)
    # int64: offsets into all steps can exceed 2^31.
    start = t.to(tl.int64) * B
    given = projected + start * (4 * H)
    output = tl.sigmoid(_read(given, wide, inside) + _read(product, wide, inside))
    entry = tl.sigmoid(_read(given, wide + H, inside) + _read(product, wide + H, inside))
    forget = tl.sigmoid(_read(given, wide + 2 * H, inside) + _read(product, wide + 2 * H, inside))
    candidate = _tanh(_read(given, wide + 3 * H, inside) + _read(product, wide + 3 * H, inside))
    before = _cells_before(first_cells, every_cell, start, t, B, place, inside, H)
    cells = entry * candidate + forget * (before * _read(keep + start, row, inside))
    tanh_of_cells = _tanh(cells)
    hidden = output * tanh_of_cells
    activated = gates + start * (4 * H) + wide
    tl.store(activated, output, mask=inside)
    tl.store(activated + H, entry, mask=inside)
    tl.store(activated + 2 * H, forget, mask=inside)
    tl.store(activated + 3 * H, candidate, mask=inside)
    tl.store(every_cell + start * H + place, cells, mask=inside)
    tl.store(squashed + start * H + place, tanh_of_cells, mask=inside)
    tl.store(outputs + start * H + place, hidden, mask=inside)
    if t + 1 < T:
        tl.store(entering + place, hidden * _read(keep + start + B, row, inside), mask=inside)


@_for_any_batch
def backward(
    gradient, product, carried, gates, squashed, first_cells, every_cell, keep, changes,
    t, T, B, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the step's gates before their activation; `carried`: that of the cells, in place.

    `product`: what came back from the gates of step t + 1. Of this and of `carried` nothing is read at the last step.
    """
    row, place, wide, inside = _elements(B, H, BLOCK)
    start = t.to(tl.int64) * B
    # No rows after the last step.
    follows = row < tl.where(t + 1 < T, B, 0)
    activated = gates + start * (4 * H)
    output, entry = _read(activated, wide, inside), _read(activated, wide + H, inside)
    forget, candidate = _read(activated, wide + 2 * H, inside), _read(activated, wide + 3 * H, inside)
    tanh_of_cells = _read(squashed + start * H, place, inside)
    stays = _read(keep + start, row, inside)
    entered = _cells_before(first_cells, every_cell, start, t, B, place, inside, H) * stays
    # Nothing comes back from a step that starts an episode (keep = 0).
    back = _read(product, place, follows) * _read(keep + start + B, row, follows)
    hidden = _read(gradient + start * H, place, inside) + back
    # tanh' = 1 - tanh^2, and a sigmoid's slope is s - s^2.
    cells = _read(carried, place, follows) + hidden * (output * (1.0 - tanh_of_cells * tanh_of_cells))
    change = changes + start * (4 * H) + wide
    tl.store(change, hidden * (tanh_of_cells * (output - output * output)), mask=inside)
    tl.store(change + H, cells * (candidate * (entry - entry * entry)), mask=inside)
    tl.store(change + 2 * H, cells * (entered * (forget - forget * forget)), mask=inside)
    tl.store(change + 3 * H, cells * (entry * (1.0 - candidate * candidate)), mask=inside)
    tl.store(carried + place, cells * forget * stays, mask=inside)
