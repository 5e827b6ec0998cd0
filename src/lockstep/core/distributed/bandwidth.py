"""How fast ranks add up their gradients."""

import time

import torch

from lockstep.core.distributed.world import World

_REPEATS = 5


def all_reduce_speed(world: World, megabytes: int) -> dict[str, float]:
    """Bytes a second of a sum over ranks, counted as the gradient's size, and seconds of a tiny one; checked too.

    Called by every rank.
    """
    large = torch.ones(megabytes * 2**20 // 4, device=world.device)
    small = torch.ones(1, device=world.device)
    world.sum(large)
    right = bool((large == world.size).all())
    return {
        "bandwidth": large.numel() * 4 / _best_time(world, large),
        "latency": _best_time(world, small),
        "wrong": float(world.agree(int(not right))),
    }


def _best_time(world: World, tensor: torch.Tensor) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        world.barrier("start of a measurement")
        world.device_barrier()
        start = time.perf_counter()
        world.sum(tensor)
        world.device_barrier()
        best = min(best, time.perf_counter() - start)
    return best
