"""Splits tensors into lanes and joins them again, so that state saved per lane can be loaded on any number of ranks."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

LaneStates = Mapping[int, Mapping[str, Tensor]]
"""The tensors of each lane, by name."""


def cut(
    lanes: range, environments: Mapping[str, Tensor], whole: Mapping[str, Tensor] | None = None
) -> dict[int, dict[str, Tensor]]:
    """Each lane's part: of tensors (environments, ...) ordered by lane, and of `whole` tensors (lanes, ...)."""
    # The configuration makes the number of environments a multiple of the lanes, so equal parts are the lanes.
    parts = {name: value.tensor_split(len(lanes)) for name, value in environments.items()}
    parts |= {name: value.unbind(0) for name, value in (whole or {}).items()}
    return {lane: {name: part[number] for name, part in parts.items()} for number, lane in enumerate(lanes)}


def joined(
    lanes: range, states: LaneStates, prefix: str = "", join: Callable[[list[Tensor]], Tensor] = torch.cat
) -> dict[str, Tensor]:
    """The lanes' tensors whose names start with `prefix`, joined in lane order; the prefix is removed."""
    # Every lane has the same names, so the first one stands for all.
    names = [name for name in states[lanes[0]] if name.startswith(prefix)]
    return {name.removeprefix(prefix): join([states[lane][name] for lane in lanes]) for name in names}
