"""PyTorch's debug level for collectives, TORCH_DISTRIBUTED_DEBUG, as far as torch survives it."""

import torch.distributed as dist

VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


def lower() -> list[str]:
    """Lower the level DETAIL to INFO before a world opens whose ranks use DDP; returns a line that says so.

    With DETAIL torch wraps every process group, and DDP's constructor then ends in a segmentation fault (seen with
    torch 2.13). Without DDP, which means sync exact, DETAIL works, and names the collectives that do not match.
    """
    if dist.get_debug_level() != dist.DebugLevel.DETAIL:
        return []
    dist.set_debug_level(dist.DebugLevel.INFO)
    return [f"{VARIABLE} INFO instead of DETAIL, which crashes torch when it builds DDP; use it with --sync exact"]
