"""The items of a dataset as trees of tensors, checked one by one: an error names the item.

An item is a tuple (inputs..., target), a dict with a target among its values, or a single tensor, which is then input
and target alike. Numbers and arrays become tensors; float64 becomes float32, as weights are.
"""

import random as python_random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.errors import LockstepError, RunFailed, UserError, described
from lockstep.workloads.fit.tree import Tree, joined, leaves

TARGETS = ("target", "targets", "label", "labels", "y")
"""Keys of a dict under which its target is found; the other values are inputs, passed by their names."""


class Items:
    """A dataset's items, all of the structure of the first one."""

    def __init__(self, source: Any, name: str, seed: int) -> None:
        """`name`: in errors, such as "training data". `seed`: what an item draws at random follows from it."""
        self.source, self.name, self._seed = source, name, seed
        self.count = 0
        """How many there are; an iterable dataset has to be read for it."""
        self._epoch = -1
        self.first: Tree = None
        """The first item."""

    @property
    def in_order(self) -> bool:
        """Whether it can only be iterated over."""
        return not hasattr(self.source, "__getitem__") or isinstance(self.source, torch.utils.data.IterableDataset)

    def open(self) -> None:
        """Count the items of a map-style dataset, and read the first; UserError if it has none."""
        if self.in_order:
            self.first = self.checked(0, next(self.iterated(0), None))
            return
        try:
            self.count = len(self.source)
        except TypeError as error:
            raise UserError(f"{self.name}: has no length; define __len__, or use an IterableDataset") from error
        if not self.count:
            raise self.empty()
        self.first = self.read([0], 0)[0]

    def empty(self) -> UserError:
        """The error for a dataset without items."""
        return UserError(f"{self.name}: has no items; give at least one")

    def read(self, numbers: list[int], epoch: int) -> list[Tree]:
        """Items by their numbers; what they draw from torch, numpy or random follows from (seed, epoch, number)."""
        self._begin(epoch)
        found = []
        with _generators_kept():
            for number, word in zip(numbers, self._words(numbers, epoch), strict=True):
                _seed_generators(word)
                found.append(self.checked(number, self._item(number)))
        return found

    def iterated(self, epoch: int) -> Iterator[Any]:
        """The items of an iterable dataset, in its order; the generators are seeded once, by (seed, epoch)."""
        self._begin(epoch)
        _seed_generators(self._words([0], epoch)[0])
        number = 0
        try:
            for item in self.source:
                yield item
                number += 1
        except LockstepError:
            raise
        except Exception as error:
            raise self._raises(number, error) from error

    def checked(self, number: int, item: Any) -> Tree:
        """An item as a tree of tensors; UserError unless it has the structure of the first and finite numbers."""
        if item is None and number == 0:
            raise self.empty()
        tree = self._tree(number, item, "")
        if self.first is None:
            return tree
        expected, found = dict(leaves(self.first)), dict(leaves(tree))
        if expected.keys() != found.keys():
            parts = ", ".join(expected) or "one tensor"
            raise self._wrong(number, f"has the parts {', '.join(found) or 'one tensor'}, and {parts} in item 0")
        for place, tensor in found.items():
            self._check(number, place, tensor, expected[place])
        return tree

    def _check(self, number: int, place: str, tensor: Tensor, first: Tensor) -> None:
        where = f"{place} " if place else ""
        if tensor.shape != first.shape:
            shapes = f"{where}shape {tuple(tensor.shape)}, and {tuple(first.shape)} in item 0"
            raise self._wrong(number, f"{shapes}; make all items one size, for example by padding")
        if tensor.dtype != first.dtype:
            kinds = (str(kind).removeprefix("torch.") for kind in (tensor.dtype, first.dtype))
            raise self._wrong(number, where + "type {}, and {} in item 0; use one type".format(*kinds))
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise self._wrong(number, f"{where or 'it '}is not a finite number; correct it, or leave the item out")

    def _item(self, number: int) -> Any:
        try:
            return self.source[number]
        except LockstepError:
            raise
        except Exception as error:
            raise self._raises(number, error) from error

    def _tree(self, number: int, value: Any, place: str) -> Tree:
        if isinstance(value, dict):
            return {key: self._tree(number, part, f"{place}[{key!r}]") for key, part in value.items()}
        if isinstance(value, tuple | list):
            return tuple(self._tree(number, part, f"{place}[{at}]") for at, part in enumerate(value))
        try:
            tensor = torch.as_tensor(value).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            kind = f"{place} is" if place else "is"
            allowed = "tensors, arrays, numbers, and tuples or dicts of them"
            raise self._wrong(number, f"{kind} a {type(value).__name__}; allowed: {allowed}") from error
        return tensor.float() if tensor.dtype == torch.float64 else tensor

    def _begin(self, epoch: int) -> None:
        """Tell a dataset that wants to know which epoch it is."""
        if epoch != self._epoch and callable(getattr(self.source, "set_epoch", None)):
            self.source.set_epoch(epoch)
        self._epoch = epoch

    def _words(self, numbers: list[int], epoch: int) -> list[int]:
        return random.random_words(self._seed, f"items of {self.name}", torch.tensor(numbers), epoch)[0].tolist()

    def _wrong(self, number: int, problem: str) -> UserError:
        return UserError(f"{self.name}: item {number}: {problem}")

    def _raises(self, number: int, error: Exception) -> RunFailed:
        reason = described(error)
        return RunFailed(f"{self.name}: item {number}: raises {reason}; correct it, then the same command continues")


def stacked(items: list[Tree]) -> Tree:
    """One tree with the items as its first axis."""
    return joined(items, torch.stack)


def split(item: Tree, name: str = "dataset") -> tuple[Tree, Tree]:
    """(inputs, target) of an item or of a batch of items. Inputs: a tuple or a dict, as a module is called with."""
    if isinstance(item, dict):
        key = next((key for key in TARGETS if key in item), None)
        if key is None or len(item) < 2:
            keys = ", ".join(map(str, item)) or "none"
            known = ", ".join(TARGETS)
            raise UserError(f"{name}: items are dicts with the keys {keys}; allowed: inputs, and one of {known}")
        return {name: value for name, value in item.items() if name != key}, item[key]
    if isinstance(item, tuple):
        if len(item) < 2:
            raise UserError(f"{name}: items are tuples of {len(item)}; allowed: (inputs..., target)")
        return item[:-1], item[-1]
    # Nothing but the input: it is compared with itself, as autoencoders are.
    return (item,), item


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Restore the state of the process's generators afterwards."""
    kept = torch.get_rng_state(), np.random.get_state(), python_random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        python_random.setstate(kept[2])


def _seed_generators(word: int) -> None:
    torch.default_generator.manual_seed(word)
    np.random.seed(word)
    python_random.seed(word)
