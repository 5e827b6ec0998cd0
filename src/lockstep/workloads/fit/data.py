"""Datasets for the supervised learner: read into memory once, or streamed batch by batch. P: places of a window."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lockstep.errors import UserError
from lockstep.workloads.fit.items import Items, split, stacked
from lockstep.workloads.fit.reading import Reader
from lockstep.workloads.fit.tree import Tree, leaves, mapped

_CHUNK = 256
"""Items that are read into memory at a time."""
_TRIED = 16
"""Items that are read twice, to find out whether they are the same every time."""


class _Samples:
    """Samples of one group, gathered from a tree of tensors with the samples first."""

    def __init__(self, items: Items, digest: str) -> None:
        assert items.count > 0
        self.sizes: tuple[int, ...] = (items.count,)
        self.digest, self.first, self._name = digest, items.first, items.name
        self._tree: Tree = None

    @property
    def classes(self) -> int:
        """One more than the largest class."""
        target = split(self._tree, self._name)[1]
        return int(target.max()) + 1

    def inputs(self, group: int, index: Tensor) -> Tree:
        """Inputs of samples, as the module is called with."""
        return mapped(split(self._tree, self._name)[0], lambda tensor: tensor[index])

    def labels(self, group: int, index: Tensor) -> Tree:
        """Targets of samples."""
        return mapped(split(self._tree, self._name)[1], lambda tensor: tensor[index])


class InMemory(_Samples):
    """All samples on the rank's device."""

    def __init__(self, items: Items, tree: Tree, device: torch.device) -> None:
        super().__init__(items, _digest(tree))
        self._tree = mapped(tree, lambda tensor: tensor.to(device))


class Stream(_Samples):
    """The samples of one batch at a time, in windows that are filled in place; see `Streamed`."""

    def __init__(self, items: Items, device: torch.device, workers: int) -> None:
        # Not of all items, which would have to be read for it.
        super().__init__(items, f"{_digest(items.first)[:24]}-{items.count}")
        self.keeps_order = items.in_order
        self._device = device
        self._reader = Reader(items, workers, pinned=device.type == "cuda")
        self._windows: dict[int, Tree] = {}

    def begin(self, epoch: int, batches: Tensor) -> None:
        """See Streamed."""
        places = batches.shape[1]
        if places not in self._windows:
            self._windows[places] = mapped(
                self.first, lambda tensor: torch.zeros((places, *tensor.shape), dtype=tensor.dtype, device=self._device)
            )
        # Kept by size: a recorded graph reads the window that it was recorded with.
        self._tree = self._windows[places]
        self._reader.begin(epoch, batches.tolist())

    def advance(self) -> None:
        """See Streamed."""
        for (_, window), (_, read) in zip(leaves(self._tree), leaves(self._reader.next()), strict=True):
            window.copy_(read, non_blocking=True)


def open_data(
    source: Any, name: str, *, seed: int, memory: int, workers: int, device: torch.device
) -> InMemory | Stream:
    """A dataset as the learner needs it: in memory if it takes at most `memory` bytes, else streamed."""
    if not (hasattr(source, "__getitem__") or hasattr(source, "__iter__")):
        kind = type(source).__name__
        raise UserError(f"{name}: is a {kind}; allowed: a torch Dataset, or a function that returns one")
    if isinstance(source, Iterator):
        raise UserError(f"{name}: is an iterator, which can be read only once; give a function that returns a new one")
    items = Items(source, name, seed)
    items.open()
    split(items.first, name)
    tree = _collected(items, memory) if items.in_order else _read(items, memory, workers)
    return InMemory(items, tree, device) if tree is not None else Stream(items, device, workers)


def _read(items: Items, memory: int, workers: int) -> Tree | None:
    """All items of a map-style dataset; None if they are too large, or not the same every time."""
    if _bytes(items.first) * items.count > memory or _varies(items):
        return None
    chunks = [list(range(start, min(start + _CHUNK, items.count))) for start in range(0, items.count, _CHUNK)]
    reader = Reader(items, workers)
    reader.begin(0, chunks)
    tree = mapped(items.first, lambda tensor: torch.empty((items.count, *tensor.shape), dtype=tensor.dtype))
    for chunk in chunks:
        for (_, whole), (_, part) in zip(leaves(tree), leaves(reader.next()), strict=True):
            whole[chunk[0] : chunk[-1] + 1] = part
    return tree


def _varies(items: Items) -> bool:
    """Whether items are drawn anew in every epoch, such as augmented images: read once, they would never change."""
    numbers = list(range(min(_TRIED, items.count)))
    one, other = (stacked(items.read(numbers, epoch)) for epoch in (0, 1))
    return any(not torch.equal(a, b) for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=True))


def _collected(items: Items, memory: int) -> Tree | None:
    """All items of an iterable dataset, which are also counted; None if they are too large."""
    most, kept, count = memory // max(1, _bytes(items.first)), [], 0
    for count, item in enumerate(items.iterated(0), start=1):
        if count <= most:
            kept.append(items.checked(count - 1, item))
        elif kept:
            kept = []
    items.count = count
    return stacked(kept) if count <= most else None


def _bytes(item: Tree) -> int:
    return sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(item))


def _digest(tree: Tree) -> str:
    digest = hashlib.sha256()
    for name, tensor in leaves(tree):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
