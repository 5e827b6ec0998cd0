"""How functions of our own are computed for several lanes at once, under `vmap` over lanes. L: lanes.

`vmap` knows torch's operations. A function that writes to memory, chooses by values or has an order of its own needs a
rule, which says whether its rows know of each other.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.compute import torch_private

Axes = tuple[int | None, ...]
"""An axis for each tensor; None = it has no such axis."""
Rule = Callable[..., tuple[Any, Any]]
"""What `torch.autograd.Function.vmap` does: (info, axes of lanes, *arguments) -> results and their axes of lanes."""


def by_row(function: Callable[..., Any], rows: Axes, results: int | tuple[int, ...]) -> Rule:
    """For a function whose rows do not know of each other: the rows of all lanes become one batch.

    `rows`: each argument's axis of rows; `results`: that of the result, or of each of its results.
    """

    def rule(info: Any, axes: Axes, *arguments: Any) -> tuple[Any, Any]:
        parts = zip(arguments, axes, rows, strict=True)
        found = function(*(_joined(info.batch_size, *part) for part in parts))
        if isinstance(results, int):
            return found.unflatten(results, (info.batch_size, -1)), results
        parted = [value.unflatten(axis, (info.batch_size, -1)) for value, axis in zip(found, results, strict=True)]
        return tuple(parted), results

    return rule


def _joined(lanes: int, argument: Any, axis: int | None, where: int | None) -> Any:
    """An argument with the rows of all lanes, at axis `where`; `axis`: that of the lanes."""
    if where is None:
        return argument
    if axis is None:
        # The same rows for every lane.
        argument, axis = argument.expand(lanes, *argument.shape), 0
    return argument.movedim(axis, where).flatten(where, where + 1)


def by_lane(function: Callable[..., Any]) -> Rule:
    """For a function that adds up a lane's rows, to one result or several: one lane after the other."""

    def rule(info: Any, axes: Axes, *arguments: Any) -> tuple[Any, Any]:
        parts = [
            [argument] * info.batch_size if axis is None else argument.unbind(axis)
            for argument, axis in zip(arguments, axes, strict=True)
        ]
        found = [function(*part) for part in zip(*parts, strict=True)]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(torch.stack(column) for column in zip(*found, strict=True)), (0,) * len(found[0])

    return rule


def with_rule(function: Callable[..., Any], rule: Rule) -> Callable[..., Any]:
    """A function that is not differentiated, with its rule for lanes."""

    class Ruled(torch.autograd.Function):
        forward = staticmethod(function)
        vmap = staticmethod(rule)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            """Nothing to keep."""

    def called(*arguments: Any) -> Any:
        # Plainly where there are no lanes: an autograd function costs more than a small operation.
        return function(*arguments) if _plain() else Ruled.apply(*arguments)

    return called


def rows_at(table: Tensor, index: Tensor) -> Tensor:
    """The rows (B, ...) of a table at positions (B,)."""
    # The fastest way, for which `vmap` has no rule: it would copy the table for each lane.
    return table.index_select(0, index) if _plain() else table[index]


def _plain() -> bool:
    return torch.compiler.is_compiling() or not torch_private.transforming()
