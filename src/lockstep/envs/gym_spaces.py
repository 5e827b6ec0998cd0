"""Gymnasium's spaces as rows of numbers: observations become rows, and rows become actions. Needs no torch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lockstep.envs.spaces import Actions, Continuous, Discrete, MultiDiscrete, Part
from lockstep.errors import UserError

Row = NDArray[Any]
MASK = "action_mask"
"""The key of an observation or an info under which environments list the actions that are allowed."""
_CHANNELS = (1, 3, 4)
"""Sizes that the last axis of an image with channels last can have."""
_SMALLEST_IMAGE = 8
"""Height and width from which a box of bytes counts as an image; smaller ones are read as vectors."""


@dataclass(frozen=True)
class Observations:
    """How the observations of a space are written as rows of one shape and type."""

    shape: tuple[int, ...]
    """The shape of one observation as networks get it."""
    dtype: Any
    """uint8 for a single image, else float32."""
    parts: tuple[Part, ...]
    """What a row is put together from; empty if it is one tensor."""
    encode: Callable[[Any], Row]
    """An observation of the space as a flat row."""
    mask: int = 0
    """Numbers at the end of a row that an environment reports in its info: which actions are allowed; 0 = none."""

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class ActionRows:
    """How rows of float32 become actions of a space."""

    actions: Actions
    size: int
    """Numbers of a row."""
    decode: Callable[[Row], Any]


@dataclass(frozen=True)
class _Leaf:
    """A simple space inside an observation: what it becomes, and how."""

    part: Part
    encode: Callable[[Any], Row]


def observations_of(space: spaces.Space[Any], where: str, mask: int = 0, shrink: int = 1) -> Observations:
    """How observations of a space are written; UserError if they have no fixed size.

    `mask`: see `Observations`. `shrink`: factor by which images are made smaller.
    """
    leaves = list(_leaves(space, "", where, shrink))
    single = len(leaves) == 1 and not mask and leaves[0][1].part.kind != "mask"
    if single:
        path, leaf = leaves[0]
        image = leaf.part.kind == "image"
        dtype: Any = np.uint8 if image else np.float32
        encode_leaf = leaf.encode
        # Of most environments an observation is a row as it is; their steps are counted in microseconds.
        as_it_is = space.shape if isinstance(space, spaces.Box) and len(space.shape) == 1 else None

        def encode_single(value: Any) -> Row:
            if type(value) is np.ndarray and value.shape == as_it_is and value.dtype == dtype:
                return value
            row = encode_leaf(_at(value, path) if path else value)
            return row if row.dtype == dtype else row.astype(dtype)

        return Observations(leaf.part.shape if image else (leaf.part.size,), dtype, (), encode_single)
    parts = tuple(leaf.part for _, leaf in leaves)
    if mask:
        parts += (Part(MASK, (mask,), "mask"),)

    def encode(value: Any) -> Row:
        return np.concatenate([leaf.encode(_at(value, path)).astype(np.float32) for path, leaf in leaves])

    return Observations((sum(part.size for part in parts),), np.float32, parts, encode, mask)


def actions_of(space: spaces.Space[Any], where: str) -> ActionRows:
    """How rows become actions of a space; UserError for spaces without a policy."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return ActionRows(Discrete(int(space.n)), 1, lambda row: int(row[0]) + first)
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts, shape, dtype = space.nvec.ravel(), space.start, space.shape, space.dtype
        return ActionRows(
            MultiDiscrete(tuple(int(count) for count in counts)),
            counts.size,
            lambda row: row.reshape(shape).astype(dtype) + starts,
        )
    if isinstance(space, spaces.MultiBinary):
        shape, dtype, size = space.shape, space.dtype, int(np.prod(space.shape))
        return ActionRows(MultiDiscrete((2,) * size), size, lambda row: row.reshape(shape).astype(dtype))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return _box_actions(space)
    raise UserError(
        f"{where}: its actions are {space}; supported are Discrete, MultiDiscrete, MultiBinary and a Box of floats"
    )


def _box_actions(space: spaces.Box) -> ActionRows:
    """Components with bounds are scaled from -1..1 to them; the others are passed on as they are."""
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low = np.where(bounded, space.low, -1.0)
    high = np.where(bounded, space.high, 1.0)
    shape, dtype, size, span = space.shape, space.dtype, int(np.prod(space.shape)), high - low

    def decode(row: Row) -> Any:
        return (low + (row.reshape(shape) + 1.0) / 2.0 * span).astype(dtype, copy=False)

    return ActionRows(Continuous(size), size, decode)


def _leaves(space: spaces.Space[Any], name: str, where: str, shrink: int) -> Iterator[tuple[tuple[Any, ...], _Leaf]]:
    """The simple spaces of a space, each with the keys that lead to it, in the space's own order."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in items:
            for path, leaf in _leaves(inner, f"{name}.{key}" if name else str(key), where, shrink):
                yield (key, *path), leaf
        return
    yield (), _leaf(space, name, where, shrink)


def _leaf(space: spaces.Space[Any], name: str, where: str, shrink: int) -> _Leaf:
    if isinstance(space, spaces.Discrete):
        first, count = int(space.start), int(space.n)
        return _Leaf(Part(name, (count,)), lambda value: _one_hot(int(value) - first, count))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = [int(count) for count in space.nvec.ravel()], space.start.ravel()

        def several(value: Any) -> Row:
            chosen = np.asarray(value).ravel() - starts
            return np.concatenate([_one_hot(int(one), count) for one, count in zip(chosen, counts, strict=True)])

        return _Leaf(Part(name, (sum(counts),)), several)
    if isinstance(space, spaces.MultiBinary):
        return _Leaf(_vector(name, int(np.prod(space.shape))), lambda value: np.asarray(value).ravel())
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and (image := _image(space.shape)):
            shape, arrange = image
            expected, small = space.shape, (shape[0], shape[1] // shrink, shape[2] // shrink)
            if min(small[1:]) < 1:
                raise UserError(f"{where}: an image of {shape[1]} x {shape[2]} cannot be {shrink} times smaller")
            return _Leaf(
                Part(name, small, "image"),
                lambda value: _shrunk(arrange(_shaped(value, expected)).reshape(shape), shrink).ravel(),
            )
        expected = space.shape
        return _Leaf(_vector(name, int(np.prod(expected))), lambda value: _shaped(value, expected).ravel())
    raise UserError(
        f"{where}: a part of its observation is {type(space).__name__}, which has no fixed size; supported are Box, "
        "Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
    )


def _vector(name: str, size: int) -> Part:
    # PettingZoo and others put the allowed actions into the observation under this key.
    return Part(name, (size,), "mask" if name.rpartition(".")[2] == MASK else "vector")


def _image(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], Callable[[Row], Row]] | None:
    """An image's shape with channels first, and how to arrange it so; None if bytes of this shape are no image."""
    if len(shape) == 2 and min(shape) >= _SMALLEST_IMAGE:
        return (1, *shape), lambda image: image
    if len(shape) == 3 and shape[2] in _CHANNELS and min(shape[:2]) >= _SMALLEST_IMAGE:
        return (shape[2], *shape[:2]), lambda image: image.transpose(2, 0, 1)
    if len(shape) == 3 and min(shape[1:]) >= _SMALLEST_IMAGE:
        # Channels first already, or a stack of grey frames.
        return shape, lambda image: image  # type: ignore[return-value]
    if len(shape) == 4 and shape[3] in _CHANNELS and min(shape[1:3]) >= _SMALLEST_IMAGE:
        # A stack of coloured frames: (frames, height, width, channels).
        merged = (shape[0] * shape[3], shape[1], shape[2])
        return merged, lambda image: image.transpose(0, 3, 1, 2)
    return None


def _shrunk(image: Row, factor: int) -> Row:
    """An image (channels, height, width) of means of square blocks; an incomplete block at the edge is left out."""
    if factor == 1:
        return image
    height, width = image.shape[1] // factor * factor, image.shape[2] // factor * factor
    whole = image[:, :height, :width].astype(np.uint32)
    # Sums of slices: ten times as fast as a mean over the axes of blocks.
    rows: Any = sum(whole[:, first::factor] for first in range(factor))
    total: Any = sum(rows[:, :, first::factor] for first in range(factor))
    return ((total + factor * factor // 2) // (factor * factor)).astype(np.uint8)


def _shaped(value: Any, expected: tuple[int, ...]) -> Row:
    found = np.asarray(value)
    if found.shape != expected:
        raise ValueError(f"an observation has shape {found.shape}, and the observation space says {expected}")
    return found


def _one_hot(value: int, count: int) -> Row:
    if not 0 <= value < count:
        raise ValueError(f"an observation is {value} above the first of {count}, which is outside of its space")
    row = np.zeros(count, np.float32)
    row[value] = 1.0
    return row


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError):
            raise ValueError(f"an observation has no {key!r}, and the observation space has") from None
    return value
