"""What a sample looks like, as JSON: structure, types and shapes, so that a model can be used without its data."""

import math
from typing import Any

import torch
from torch import Tensor

from lockstep.errors import UserError
from lockstep.workloads.fit.tree import Tree

_LARGEST = 1 << 28
"""Numbers of a tensor; a file may come from anybody, and must not exhaust the memory."""
_DAMAGED = "what it says about a sample of its data is damaged; export or train it again"


def outline(tree: Tree) -> Any:
    """A tree of tensors as JSON. Keys of dicts stay what they are, since pairs keep numbers apart from strings."""
    if isinstance(tree, Tensor):
        return {"dtype": str(tree.dtype).removeprefix("torch."), "shape": list(tree.shape)}
    if isinstance(tree, dict):
        return {"dict": [[key, outline(value)] for key, value in tree.items()]}
    return {"tuple": [outline(value) for value in tree]}


def stand_in(found: Any) -> Tree:
    """A tree of zeros that `outline` describes; UserError if it describes none."""
    try:
        if "dict" in found:
            return {key: stand_in(value) for key, value in found["dict"]}
        if "tuple" in found:
            return tuple(stand_in(value) for value in found["tuple"])
        dtype, shape = getattr(torch, found["dtype"]), found["shape"]
        if math.prod(shape) <= _LARGEST:
            return torch.zeros(shape, dtype=dtype)
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError):
        pass
    raise UserError(f"model: {_DAMAGED}")
