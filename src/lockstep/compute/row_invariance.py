"""Whether a computation gives a row the same bits whatever the number of rows beside it, on a CPU.

Sums inside a kernel depend on the number of rows, which decides how they are divided: that shows in many of their
results, and is found by trying. Elementwise functions have no sums, but a processor computes whole vectors with other
instructions than the few elements that are left over at the end, and some functions then round differently, rarely
enough that a trial may miss it. Those are only trusted where nothing is left over.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.compute.torch_private import TorchDispatchMode

# Elements that are a multiple of every processor's unrolled vectors: four of 16 floats, the largest there are.
_WHOLE_VECTORS = 64
_MOVES = """
    view _unsafe_view reshape t transpose permute expand select slice squeeze unsqueeze unbind split split_with_sizes
    cat stack copy copy_ clone _to_copy detach alias as_strided index index_select gather scatter embedding
    constant_pad_nd zeros zeros_like ones ones_like full full_like empty empty_like new_zeros new_ones new_empty fill
    fill_ zero_ arange where masked_fill masked_fill_ eq ne lt le gt ge logical_and logical_or logical_not bitwise_and
    bitwise_or bitwise_not argmax argmin lift_fresh
"""
_CORRECTLY_ROUNDED = """
    sub rsub mul mul_ div div_ neg abs sign relu relu_ clamp clamp_ clamp_min clamp_max maximum minimum hardtanh sqrt
    floor ceil round max_pool2d_with_indices
"""
# torch computes the elements that are left over of these with the vectors' instructions too.
_VECTORS_ALWAYS = "exp log log1p tanh erf sin cos"
# Sums over a row, and over the channels or neighbours of an element.
_SUM_NAMES = """
    mm addmm bmm baddbmm linear matmul mkldnn_linear convolution mkldnn_convolution native_layer_norm native_group_norm
    _softmax _log_softmax logsumexp sum mean var amax amin cumsum avg_pool2d linalg_vector_norm
"""
_SUMS = set(_SUM_NAMES.split())
_TRUSTED = set(" ".join((_MOVES, _CORRECTLY_ROUNDED, _VECTORS_ALWAYS)).split())


class _Trace(TorchDispatchMode):
    """Notes the results of sums, and operations that may round the elements left over differently."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[Tensor] = []
        self.leftovers: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        outputs = result if isinstance(result, tuple | list) else (result,)
        numbers = [output for output in outputs if isinstance(output, Tensor) and output.is_floating_point()]
        # Plain additions are rounded correctly; with a factor it depends on whether the product is rounded first.
        if name in _TRUSTED or (name in ("add", "add_") and (kwargs or {}).get("alpha", 1) == 1):
            return result
        # Of operations that are not known, too: they may contain sums. Copies, as a later one may work in place.
        self.sums += [output.clone() for output in numbers]
        whole = all(output.is_contiguous() and output.numel() % _WHOLE_VECTORS == 0 for output in numbers)
        if name not in _SUMS and not whole:
            self.leftovers.add(name)
        return result


def same_bits_in_groups(function: Callable[..., Sequence[Tensor]], rows: Sequence[Tensor], groups: int) -> bool:
    """Whether a function of rows gives the same bits for all rows at once as for each of several equal groups."""
    with _Trace() as whole:
        outputs = function(*rows)
    traces, results = [], []
    for part in zip(*(column.chunk(groups) for column in rows), strict=True):
        with _Trace() as trace:
            results.append(function(*part))
        traces.append(trace)
    if any(trace.leftovers or len(trace.sums) != len(whole.sums) for trace in traces):
        return False
    # Each sum by itself: what differs in one of them may be rounded away by what follows, in a few rows.
    pairs = [(kept, [trace.sums[number] for trace in traces]) for number, kept in enumerate(whole.sums)]
    pairs += [(output, [result[number] for result in results]) for number, output in enumerate(outputs)]
    return all(_equal(together, apart) for together, apart in pairs)


def _equal(together: Tensor, apart: Sequence[Tensor]) -> bool:
    joined = torch.cat(list(apart)) if together.ndim else torch.stack(list(apart))
    return joined.shape == together.shape and torch.equal(_bits(joined), _bits(together))


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8)
