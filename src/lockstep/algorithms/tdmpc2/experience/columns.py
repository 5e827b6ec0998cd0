"""The columns of the replay buffer, which environments or recorded episodes fill."""

import torch

from lockstep.algorithms.tdmpc2.model.networks import Spaces
from lockstep.rl.replay import Column

TASK = "task"
"""Column with the number of a step's task; only if there are several tasks."""


def columns(spaces: Spaces) -> dict[str, Column]:
    """The replay columns."""
    kept = {
        "observation": Column((spaces.observation,)),
        # Stored as well, since the next row may be the first of another episode.
        "following": Column((spaces.observation,)),
        "action": Column((spaces.action,)),
        "reward": Column(),
        "terminated": Column((), torch.bool),
    }
    return kept | ({TASK: Column((), torch.int64)} if spaces.tasks > 1 else {})
