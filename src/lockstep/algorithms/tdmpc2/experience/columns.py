"""The columns of the replay buffer, which environments or recorded episodes fill."""

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.model.networks import Spaces
from lockstep.rl.replay import Column

TASK = "task"
"""Column with the number of a step's task; only if there are several tasks."""


def columns(spaces: Spaces) -> dict[str, Column]:
    """The replay columns."""
    seen = Column((spaces.observation,))
    if spaces.image is not None:
        # The newest frame only: the frames before it are in the rows before it.
        channels, *size = spaces.image
        seen = Column((channels // spaces.frames, *size), torch.uint8)
    kept = {
        "observation": seen,
        # Stored as well, since the next row may be the first of another episode.
        "following": seen,
        "action": Column((spaces.action,)),
        "reward": Column(),
        "terminated": Column((), torch.bool),
    }
    return kept | ({TASK: Column((), torch.int64)} if spaces.tasks > 1 else {})


def newest(observation: Tensor, frames: int) -> Tensor:
    """The part of an observation that a row stores: of an image (E, C, ...) its newest frame."""
    return observation[:, -(observation.shape[1] // frames) :]
