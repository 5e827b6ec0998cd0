"""Arrays on a device that NumPy's functions accept: code written for NumPy then computes on a GPU as it stands.

NumPy hands a call over to whatever defines `__array_ufunc__` and `__array_function__`, which here answer with PyTorch.
Types follow NumPy's rules: a quotient of integers is float64, and a Python number takes the array's type. What creates
arrays is told by `like=`, and a table of constants is read by `look_up`, since `table[index]` asks the table alone.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

_TYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
_NUMPY_TYPES = {own: theirs for theirs, own in _TYPES.items()}
_RANGES = {
    kind: range(torch.iinfo(kind).min, torch.iinfo(kind).max + 1)
    for kind in (torch.int8, torch.int16, torch.int32, torch.int64)
}
_NUMBERS = (bool, int, float)
Array = Any
"""A NumPy array or a DeviceArray."""


def tensor_of(values: Array) -> Tensor:
    """An array as a tensor, without a copy."""
    return values.tensor if isinstance(values, DeviceArray) else torch.as_tensor(values)


def array_of(tensor: Tensor, like: Array = None) -> Array:
    """A tensor as an array, without a copy: NumPy's own on the CPU, unless it is to be `like` a DeviceArray."""
    own = tensor.device.type == "cpu" and not isinstance(like, DeviceArray)
    return tensor.numpy() if own else DeviceArray(tensor)


def look_up(table: Array, index: Array) -> Array:
    """`table[index]`, where the index is."""
    return DeviceArray(index._tensor(table)[index.tensor]) if isinstance(index, DeviceArray) else table[index]


class DeviceArray(NDArrayOperatorsMixin):
    """A tensor that behaves like a NumPy array, as far as it is needed."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements, in NumPy's words."""
        return _NUMPY_TYPES[self.tensor.dtype]

    def __len__(self) -> int:
        return len(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    def __bool__(self) -> bool:
        # Of one element; PyTorch refuses several, as NumPy does.
        return bool(self.tensor)

    def __getitem__(self, key: Any) -> "DeviceArray":
        return DeviceArray(self.tensor[self._index(key)])

    def __setitem__(self, key: Any, values: Any) -> None:
        self.tensor[self._index(key)] = self._operand(values, self.tensor.dtype)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("an array on a device does not become one of NumPy by itself: it would be copied each time")

    def astype(self, kind: Any) -> "DeviceArray":
        """The same numbers as another type."""
        return DeviceArray(self.tensor.to(_TYPES[np.dtype(kind)], copy=True))

    def reshape(self, *shape: int) -> "DeviceArray":
        """The same elements with other axes."""
        return DeviceArray(self.tensor.reshape(*shape))

    def tolist(self) -> Any:
        """Python's own numbers, in lists."""
        return self.tensor.tolist()

    def sum(self, axis: int | None = None, dtype: Any = None) -> "DeviceArray":
        """The sum along an axis, or of everything."""
        kind = None if dtype is None else _TYPES[np.dtype(dtype)]
        return DeviceArray(self.tensor.sum(dtype=kind) if axis is None else self.tensor.sum(axis, dtype=kind))

    def min(self, axis: int, initial: int) -> "DeviceArray":
        """The least element along an axis, at most `initial`."""
        if not self.tensor.shape[axis]:
            return DeviceArray(_as(self.tensor.sum(axis).fill_(initial), self.tensor.dtype))
        return DeviceArray(self.tensor.amin(axis).clamp(max=initial))

    def cumsum(self, axis: int) -> "DeviceArray":
        """Running sums along an axis."""
        if not self.tensor.is_floating_point():
            return DeviceArray(self.tensor.cumsum(axis))
        # In order, as NumPy adds: PyTorch's own sums of floats on a GPU may come out differently each time.
        running = list(self.tensor.unbind(axis))
        if not running:
            return self
        for place in range(1, len(running)):
            running[place] = running[place - 1] + running[place]
        return DeviceArray(torch.stack(running, axis))

    def clip(self, min: float | None = None, max: float | None = None) -> "DeviceArray":
        """The same elements within bounds."""
        return DeviceArray(_clip(self, self, min, max))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions of elements, its operators among them."""
        if method == "accumulate" and ufunc is np.logical_and:
            return DeviceArray((~tensor_of(inputs[0]).bool()).cumsum(options.get("axis", 0)) == 0)
        known = method == "__call__" and ufunc in _BY_ELEMENT and not options.keys() - {"out"}
        if not known or not all(isinstance(out, DeviceArray) for out in options.get("out", ())):
            return NotImplemented
        *taken, given = _resolved(ufunc, tuple([_kind(value) for value in inputs]))
        operands = [self._operand(value, kind) for value, kind in zip(inputs, taken, strict=True)]
        result = _as(_BY_ELEMENT[ufunc](*operands), given)
        if out := options.get("out"):
            if not np.can_cast(_NUMPY_TYPES[given], out[0].dtype, "same_kind"):
                raise TypeError(f"{ufunc.__name__}: {_NUMPY_TYPES[given]} does not fit into {out[0].dtype}")
            out[0].tensor.copy_(result)
            return out[0]
        return DeviceArray(result)

    def __array_function__(
        self, function: Callable, types: Sequence[type], arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        """NumPy's other functions."""
        if function not in _FUNCTIONS:
            return NotImplemented
        # Some functions pass on their defaults: the memory's order, and NumPy's own device.
        given = {name: value for name, value in options.items() if name not in ("order", "device")}
        return DeviceArray(_FUNCTIONS[function](self, *arguments, **given))

    def _tensor(self, values: Any) -> Tensor:
        """Any values as a tensor on this device."""
        if isinstance(values, DeviceArray):
            return values.tensor
        return torch.as_tensor(np.asarray(values), device=self.tensor.device)

    def _operand(self, value: Any, kind: torch.dtype) -> Any:
        # Python's numbers are PyTorch's, too, and need no memory on the device.
        if type(value) not in _NUMBERS:
            return _as(self._tensor(value), kind)
        if type(value) is int and kind in _RANGES and value not in _RANGES[kind]:
            raise OverflowError(f"{value} is not a number of type {_NUMPY_TYPES[kind]}")
        return value

    def _index(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(self._index(part) for part in key)
        if not isinstance(key, DeviceArray | np.ndarray | list):
            return key
        found = self._tensor(key)
        return found if found.dtype is torch.bool else found.long()


_BY_ELEMENT: dict[np.ufunc, Callable[..., Tensor]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.negative: operator.neg,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.invert: operator.invert,
    np.minimum: lambda one, other: one.clamp(max=other) if isinstance(one, Tensor) else other.clamp(max=one),
    np.maximum: lambda one, other: one.clamp(min=other) if isinstance(one, Tensor) else other.clamp(min=one),
    np.exp: torch.exp,
    np.log1p: torch.log1p,
}


def _as(tensor: Tensor, kind: torch.dtype) -> Tensor:
    return tensor if tensor.dtype is kind else tensor.to(kind)


def _kind(value: Any) -> Any:
    """What decides about the type of a result: Python's numbers adapt to arrays."""
    if type(value) in (int, float):
        return type(value)
    return value.dtype if isinstance(value, DeviceArray) else np.asarray(value).dtype


@cache
def _resolved(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> list[torch.dtype]:
    """The types that NumPy computes with: of each operand and of the result."""
    return [_TYPES[kind] for kind in ufunc.resolve_dtypes((*kinds, None))]


def _common(values: Sequence[Any]) -> torch.dtype:
    """The type that NumPy gives several values together."""
    return _TYPES[np.result_type(*[value if type(value) in (int, float) else _kind(value) for value in values])]


def _where(array: DeviceArray, condition: Any, one: Any, other: Any) -> Tensor:
    kind = _common([one, other])
    # PyTorch would make single precision of two numbers.
    first = _full(array, (), one, _NUMPY_TYPES[kind]) if type(one) in _NUMBERS else array._operand(one, kind)
    return _as(torch.where(array._tensor(condition), first, array._operand(other, kind)), kind)


def _stack(array: DeviceArray, parts: Sequence[Any], axis: int = 0) -> Tensor:
    kind = _common(parts)
    return torch.stack([_as(array._tensor(part), kind) for part in parts], axis)


def _take_along(array: DeviceArray, table: Any, index: Any, axis: int) -> Tensor:
    return torch.take_along_dim(array._tensor(table), array._tensor(index), axis)


def _searchsorted(array: DeviceArray, edges: Any, values: Any, side: str = "left") -> Tensor:
    edges = edges if isinstance(edges, DeviceArray) else np.asarray(edges)
    kind = _common([edges, values])
    ordered, found = (_as(array._tensor(part), kind) for part in (edges, values))
    return torch.searchsorted(ordered, found.contiguous(), side=side)


def _clip(array: DeviceArray, values: Any, least: float | None, most: float | None) -> Tensor:
    given = [bound for bound in (least, most) if bound is not None]
    return _as(array._tensor(values), _common([values, *given])).clamp(least, most)


def _einsum(array: DeviceArray, equation: str, *operands: Any) -> Tensor:
    # In double precision: a GPU may multiply float32 with fewer bits.
    parts = [array._tensor(operand).double() for operand in operands]
    return torch.einsum(equation, *parts).to(_common(operands))


def _array(array: DeviceArray, values: Any) -> Tensor:
    return array._tensor(np.array(values))


def _full(array: DeviceArray, shape: Any, value: Any, dtype: Any = None) -> Tensor:
    kind = np.asarray(value).dtype if dtype is None else np.dtype(dtype)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.full(sizes, value, dtype=_TYPES[kind], device=array.tensor.device)


_FUNCTIONS: dict[Callable, Callable[..., Tensor]] = {
    np.where: _where,
    np.stack: _stack,
    np.take_along_axis: _take_along,
    np.searchsorted: _searchsorted,
    np.clip: _clip,
    np.einsum: _einsum,
    np.array: _array,
    np.full: _full,
    np.zeros: lambda array, shape, dtype=float: _full(array, shape, 0, dtype),
    np.ones: lambda array, shape, dtype=float: _full(array, shape, 1, dtype),
    np.arange: lambda array, stop: torch.arange(stop, device=array.tensor.device),
    np.flip: lambda array, values, axis: array._tensor(values).flip(axis),
    np.flatnonzero: lambda array, values: array._tensor(values).reshape(-1).nonzero()[:, 0],
    np.isin: lambda array, values, among: torch.isin(array._tensor(values), array._tensor(among)),
}
