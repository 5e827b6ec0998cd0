"""How fast ranks add up their gradients."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from lockstep.distributed.world import World

_REPEATS = 5
# Exchanges in a row of one measurement: those who leave a barrier later than others then count little.
_IN_A_ROW = 8


def all_reduce_speed(world: World, megabytes: int) -> dict[str, float]:
    """Bytes a second of a sum over ranks, counted as the gradient's size, and seconds of a tiny one; checked too.

    Called by every rank.
    """
    large = torch.ones(megabytes * 2**20 // 4, device=world.device)
    small = torch.ones(1, device=world.device)
    world.sum(large)
    right = bool((large == world.size).all())
    return {
        "bandwidth": large.numel() * 4 / min(_times(world, lambda: world.sum(large))),
        "latency": min(_times(world, lambda: world.sum(small))),
        "wrong": float(world.agree(int(not right))),
    }


def exchange_seconds(world: World, size: int) -> dict[str, float | str]:
    """Seconds that a sum of `size` bytes, a tiny one and a decision take, and the backend. Called by every rank."""
    large = torch.zeros(max(1, size // 4), device=world.device)
    small = torch.zeros(1, device=world.device)
    exchanges: dict[str, Callable[[], object]] = {
        "large": lambda: world.sum(large),
        "small": lambda: world.sum(small),
        "flag": lambda: world.agree(0),
    }
    found = {name: min(_times(world, exchange, _IN_A_ROW)) for name, exchange in exchanges.items()}
    return {**found, "backend": dist.get_backend(world.data_group)}


def _times(world: World, exchange: Callable[[], object], in_a_row: int = 1) -> list[float]:
    """Seconds of one exchange, several times."""
    times = []
    exchange()  # The first makes connections.
    for _ in range(_REPEATS):
        world.barrier("start of a measurement")
        world.device_barrier()
        start = time.perf_counter()
        for _ in range(in_a_row):
            exchange()
        world.device_barrier()
        times.append((time.perf_counter() - start) / in_a_row)
    return times
