"""Whether a computation gives a row the same bits whatever the number of rows beside it, on a CPU.

Sums inside a kernel depend on the number of rows, which decides how they are divided: that shows in many of their
results, and is found by trying. Elementwise functions have no sums, but a processor computes whole vectors with other
instructions than the few elements that are left over at the end, and some functions then round differently, rarely
enough that a trial may miss it. Those are only trusted where nothing is left over.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from lockstep.compute.cohorts import cohorts_of
from lockstep.compute.torch_private import TorchDispatchMode

T = TypeVar("T")

# Elements that are a multiple of every processor's unrolled vectors: four of 16 floats, the largest there are.
_WHOLE_VECTORS = 64
_BLOCKS_TRIED = 8
_MOVES = """
    view _unsafe_view reshape t transpose permute expand select slice squeeze unsqueeze unbind split split_with_sizes
    cat stack copy copy_ clone _to_copy detach alias as_strided index index_select gather scatter embedding
    constant_pad_nd zeros zeros_like ones ones_like full full_like empty empty_like new_zeros new_ones new_empty fill
    fill_ zero_ arange where masked_fill masked_fill_ eq ne lt le gt ge logical_and logical_or logical_not bitwise_and
    bitwise_or bitwise_not argmax argmin lift_fresh flip unfold scalar_tensor new_full threshold_backward
    max_pool2d_with_indices_backward slice_backward select_backward eye
"""
_CORRECTLY_ROUNDED = """
    add add_ sub rsub mul mul_ div div_ neg abs sign relu relu_ clamp clamp_ clamp_min clamp_max maximum minimum
    hardtanh sqrt floor ceil round max_pool2d_with_indices
"""
# torch computes the elements that are left over of these with the vectors' instructions too. MKL, which it calls
# instead where there is one, promises nothing: there they are tried.
_VECTORS_ALWAYS = "exp log log1p tanh erf sin cos"
# Sums over a row, and over the channels or neighbours of an element.
_SUM_NAMES = """
    mm addmm bmm baddbmm linear matmul mkldnn_linear convolution mkldnn_convolution native_layer_norm native_group_norm
    _softmax _log_softmax sum mean var amax amin cumsum avg_pool2d linalg_vector_norm scatter_add
    _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward embedding_dense_backward
    convolution_backward
"""
_SUMS = set(_SUM_NAMES.split())
_TRUSTED = set(" ".join((_MOVES, _CORRECTLY_ROUNDED)).split())


@dataclass(frozen=True)
class _Note:
    """A result whose bits may depend on the number of rows."""

    value: Tensor
    leftovers: bool
    """Whether it has elements at its end that may be rounded differently."""


class _Watch(TorchDispatchMode):
    """Finds out whether some operation may have rounded the elements left over differently."""

    closed_eyes = False
    """See `unseen`."""

    def __init__(self) -> None:
        super().__init__()
        self.leftovers = False
        # Before anything is watched: they may have to be tried.
        self._vectors_always = _vectors_always()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if _Watch.closed_eyes:
            return result
        if name not in self._vectors_always and not _trusted(name, args, kwargs or {}):
            for output in result if isinstance(result, tuple | list) else (result,):
                if isinstance(output, Tensor) and output.is_floating_point():
                    self.note(name, output)
        return result

    def note(self, name: str, output: Tensor) -> None:
        """An operation's result, whose bits may depend on the number of rows."""
        self.leftovers |= _leaves_over(name, output)


def _trusted(name: str, args: Any, kwargs: Any) -> bool:
    # A square is one product, and rounded correctly; its gradient has a first power. So are plain additions; with a
    # factor it depends on whether the product is rounded first.
    one_product = name == "pow" and isinstance(args[1], int | float) and args[1] in (1, 2)
    return one_product or (name in _TRUSTED and kwargs.get("alpha", 1) == 1)


@cache
def _vectors_always() -> frozenset[str]:
    names = _VECTORS_ALWAYS.split()
    alike = not torch.backends.mkl.is_available()
    return frozenset(name for name in names if alike or rounds_ends_alike(getattr(torch, name)))


def rounds_ends_alike(function: Callable[[Tensor], Tensor]) -> bool:
    """Whether an elementwise function gives a number the same bits wherever it stands, as far as a trial can tell.

    Of those that do not, one in 30 numbers has other bits at the end of a vector (sigmoid, ELU). Here are 32,000 ends.
    """
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        values = 4.0 * torch.randn(_BLOCKS_TRIED, _WHOLE_VECTORS, generator=generator, dtype=dtype)
        whole = function(values)
        for block in range(_BLOCKS_TRIED):
            # Each by itself: the rows of one tensor would be computed as one vector.
            alone = (function(values[block, :length].clone()) for length in range(1, _WHOLE_VECTORS))
            if not all(same_bits(found, whole[block, : len(found)]) for found in alone):
                return False
    return True


def _leaves_over(name: str, output: Tensor) -> bool:
    return name not in _SUMS and _one_after_the_other(output) % _WHOLE_VECTORS != 0


def _one_after_the_other(values: Tensor) -> int:
    """How many elements lie in memory without a gap, in whichever order of their axes."""
    count = 1
    for stride, size in sorted(zip(values.stride(), values.shape, strict=True)):
        if size > 1 and stride != count:
            break
        count *= size
    return count


class _Trace(_Watch):
    """Keeps the results of sums, and of operations that may round the elements left over differently."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[_Note] = []

    def note(self, name: str, output: Tensor) -> None:
        """See _Watch. Of operations that are not known, too: they may contain sums."""
        # A copy, as a later operation may write to it.
        self.notes.append(_Note(output.clone(), _leaves_over(name, output)))


def in_whole_vectors(function: Callable[[], T]) -> tuple[T, bool]:
    """The function's result, and whether it left no elements over that would be rounded differently."""
    with _Watch() as watch:
        result = function()
    return result, not watch.leftovers


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Operations in this context are not looked at by a trial: they are the same for each group by construction."""
    before, _Watch.closed_eyes = _Watch.closed_eyes, True
    try:
        yield
    finally:
        _Watch.closed_eyes = before


def same_bits_in_groups(
    function: Callable[..., Sequence[Tensor]],
    rows: Sequence[Tensor],
    groups: int,
    together: Callable[..., Sequence[Tensor]] | None = None,
) -> bool:
    """Whether a function of rows gives the same bits for all rows at once as for each of several equal groups.

    `together`: what computes all rows, if it is another function.
    """
    # Several threads divide a long vector among them, so that each piece has an end of its own.
    if torch.get_num_threads() > 1:
        return False
    with _Trace() as whole:
        outputs = (together or function)(*rows)
    traces, results = [], []
    for part in zip(*(cohorts_of(column, groups) for column in rows), strict=True):
        with _Trace() as trace:
            results.append(function(*part))
        traces.append(trace)
    if any(len(trace.notes) != len(whole.notes) for trace in traces):
        return False
    # Each sum by itself: what differs in one of them may be rounded away by what follows, in a few rows.
    notes = zip(whole.notes, zip(*(trace.notes for trace in traces), strict=True), strict=True)
    pairs = zip(outputs, zip(*results, strict=True), strict=True)
    return all(_agree(*note) for note in notes) and all(_equal(*pair) for pair in pairs)


def _agree(together: _Note, apart: Sequence[_Note]) -> bool:
    # Without rows, as what is computed from weights alone.
    if all(same_bits(together.value, note.value) for note in apart):
        return True
    return not any(note.leftovers for note in apart) and _equal(together.value, [note.value for note in apart])


def _equal(together: Tensor, apart: Sequence[Tensor]) -> bool:
    return same_bits(together, torch.cat(list(apart)) if together.ndim else torch.stack(list(apart)))


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the bit."""
    return one.shape == other.shape and torch.equal(_bits(one), _bits(other))


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().reshape(-1).view(torch.uint8)
