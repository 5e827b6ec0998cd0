"""The value scale: a moving average of the spread of values in the global batch."""

import math

import torch
from torch import Tensor

_LOWER, _UPPER = 0.05, 0.95  # percentiles instead of extremes, which outliers would dominate


def spread_of(values: Tensor) -> Tensor:
    """The distance from the 5th to the 95th percentile of values (B,), linearly interpolated; at least 1."""
    ordered = values.sort().values
    return (_percentile(ordered, _UPPER) - _percentile(ordered, _LOWER)).clamp(min=1.0)


def _percentile(ordered: Tensor, part: float) -> Tensor:
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    # A batch of one has no neighbour to interpolate with.
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] * (1.0 - (place - below)) + ordered[above] * (place - below)


@torch.no_grad()
def follow_spread(scale: Tensor, values: Tensor, tau: float) -> None:
    """Move the scale towards the spread of these values, which are equal on every rank, by the share `tau`."""
    scale.lerp_(spread_of(values), tau)
