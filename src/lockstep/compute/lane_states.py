"""States cut into lanes and put together again: what is saved lane by lane loads in any division of the lanes."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

LaneStates = Mapping[int, Mapping[str, Tensor]]
"""What each lane has, by name."""


def cut(
    lanes: range, environments: Mapping[str, Tensor], whole: Mapping[str, Tensor] | None = None
) -> dict[int, dict[str, Tensor]]:
    """Each lane's part of tensors with all environments first, lane after lane, and of those with the lanes first."""
    parts = {name: value.tensor_split(len(lanes)) for name, value in environments.items()}
    parts |= {name: value.unbind(0) for name, value in (whole or {}).items()}
    return {lane: {name: part[number] for name, part in parts.items()} for number, lane in enumerate(lanes)}


def joined(
    lanes: range, states: LaneStates, prefix: str = "", join: Callable[[list[Tensor]], Tensor] = torch.cat
) -> dict[str, Tensor]:
    """What lanes have under names that begin so, put together under the rest of the names."""
    names = [name for name in states[lanes[0]] if name.startswith(prefix)]
    return {name.removeprefix(prefix): join([states[lane][name] for lane in lanes]) for name in names}
