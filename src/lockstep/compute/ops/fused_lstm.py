"""An LSTM's recurrence on a GPU with two kernels a step: a matrix product, and all the rest. T, B, H as in `lstm`.

A step of a few hundred sequences is bound by the number of its kernels: PyTorch's operations would be about ten in the
forward and eight in the backward pass.
"""

from typing import Any

import torch
from torch import Tensor

# Elements of (B, H) of a program: few, so that small batches are spread over the whole GPU.
_BLOCK = 256
_WARPS = 4


# Custom operators, so that torch.compile takes the kernels as they are instead of tracing into every step.
@torch.library.custom_op("lockstep::recur", mutates_args=())
def recur(
    projected: Tensor, hidden: Tensor, cells: Tensor, weight: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `lstm`: outputs, last cells, gates, the cells of every step and their tanh."""
    from lockstep.compute.ops import lstm_triton

    dtype = projected.dtype
    across = weight.to(dtype).t().contiguous()
    projected, cells, keep = projected.contiguous(), cells.contiguous(), keep.contiguous()
    outputs, last, gates, every_cell, squashed = _results(projected, cells)
    # Both are rewritten at every step: a step's product has read `entering` before its kernel starts.
    entering, product = (hidden * keep[0]).to(dtype).contiguous(), torch.empty_like(projected[0])
    grid, sizes = _launch(cells)
    # A grid of zero programs cannot be launched.
    for t in range(len(projected) if cells.numel() else 0):
        torch.mm(entering, across, out=product)
        lstm_triton.forward[grid](
            projected, product, cells, keep, gates, every_cell, squashed, outputs, entering,
            t, len(projected), len(cells), **sizes,
        )  # fmt: skip
    return outputs, last.copy_(every_cell[-1]), gates, every_cell, squashed


@torch.library.custom_op("lockstep::recur_backwards", mutates_args=())
def recur_backwards(
    gradient: Tensor,
    gates: Tensor,
    every_cell: Tensor,
    squashed: Tensor,
    first_cells: Tensor,
    weight: Tensor,
    keep: Tensor,
) -> Tensor:
    """See `lstm`: the gradient of the gates before their activation, in the dtype of `weight`."""
    from lockstep.compute.ops import lstm_triton

    gradient, first_cells, keep = gradient.contiguous(), first_cells.contiguous(), keep.contiguous()
    gates, every_cell, squashed = gates.contiguous(), every_cell.contiguous(), squashed.contiguous()
    changes = torch.empty_like(gates, dtype=weight.dtype)
    carried, product = torch.empty_like(first_cells), torch.empty_like(first_cells, dtype=weight.dtype)
    grid, sizes = _launch(first_cells)
    for t, change in reversed(list(enumerate(changes.unbind() if first_cells.numel() else ()))):
        lstm_triton.backward[grid](
            gradient, product, carried, gates, squashed, first_cells, every_cell, keep, changes,
            t, len(changes), len(first_cells), **sizes,
        )  # fmt: skip
        # No gradient into the initial state.
        if t > 0:
            torch.mm(change, weight, out=product)
    return changes


def _results(projected: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Empty tensors for what `recur` returns."""
    gates = torch.empty_like(projected, dtype=torch.float32, memory_format=torch.contiguous_format)
    outputs, every_cell, squashed = (gates.new_empty(*projected.shape[:2], cells.shape[-1]) for _ in range(3))
    return outputs, gates.new_empty(cells.shape), gates, every_cell, squashed


def _launch(cells: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    """The programs' grid, and the compile-time constants of the kernels."""
    return (-(-cells.numel() // _BLOCK),), {"H": cells.shape[-1], "BLOCK": _BLOCK, "num_warps": _WARPS}


# Shapes and dtypes of the results for torch.compile, which traces without values.
@recur.register_fake
def _(projected: Tensor, hidden: Tensor, cells: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _results(projected, cells)


@recur_backwards.register_fake
def _(gradient: Tensor, gates: Tensor, *rest: Tensor) -> Tensor:
    *_, weight, _ = rest
    return torch.empty(gates.shape, dtype=weight.dtype, device=gates.device)
