"""Tensors in tuples and dicts: what items, inputs, targets and predictions are made of."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

Tree = Any
"""A tensor, or a tuple or dict of trees."""


def mapped(tree: Tree, function: Callable[[Tensor], Any]) -> Tree:
    """The same tree with a function of every tensor in its place; what is no tensor stays as it is."""
    if isinstance(tree, dict):
        return {key: mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(mapped(value, function) for value in tree)
    return function(tree) if isinstance(tree, Tensor) else tree


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its name in the tree: `[0]`, `['mask']`."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, f"{name}[{key!r}]")
    elif isinstance(tree, tuple | list):
        for number, value in enumerate(tree):
            yield from leaves(value, f"{name}[{number}]")
    elif isinstance(tree, Tensor):
        yield name, tree


def joined(trees: list[Tree], function: Callable[[list[Tensor]], Tensor]) -> Tree:
    """One tree from several of the same structure, such as `torch.stack` of each of their tensors."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: joined([tree[key] for tree in trees], function) for key in first}
    if isinstance(first, tuple):
        return tuple(joined(list(parts), function) for parts in zip(*trees, strict=True))
    return function(trees)
