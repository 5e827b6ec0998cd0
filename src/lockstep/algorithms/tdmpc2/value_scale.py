"""The scale of the values: how far apart they lie, over the whole world's batch and slowly following."""

import math

import torch
from torch import Tensor

_LOWER, _UPPER = 0.05, 0.95


def spread_of(values: Tensor) -> Tensor:
    """From the 5th to the 95th percentile of values (B,), between neighbours in proportion; one at least."""
    ordered = values.sort().values
    return (_percentile(ordered, _UPPER) - _percentile(ordered, _LOWER)).clamp(min=1.0)


def _percentile(ordered: Tensor, part: float) -> Tensor:
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] * (1.0 - (place - below)) + ordered[above] * (place - below)


@torch.no_grad()
def follow_spread(scale: Tensor, values: Tensor, tau: float) -> None:
    """Move the scale a share of the way to the spread of these values, which are the same on every rank."""
    scale.lerp_(spread_of(values), tau)
