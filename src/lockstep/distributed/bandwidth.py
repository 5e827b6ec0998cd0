"""How fast the ranks' all-reduce is."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from lockstep.distributed.world import World

# The minimum over repeats is reported: disturbances only ever make a measurement longer.
_REPEATS = 5
# Collectives per measurement, so that ranks leaving the barrier at slightly different times matter little.
_IN_A_ROW = 8


def all_reduce_speed(world: World, megabytes: int) -> dict[str, float]:
    """Bandwidth (tensor bytes per second) and latency (seconds) of all-reduce, and whether sums were wrong.

    Called by every rank.
    """
    large = torch.ones(megabytes * 2**20 // 4, device=world.device)
    small = torch.ones(1, device=world.device)
    world.sum(large)
    # Ones from every rank must add up to the world size.
    correct = bool((large == world.size).all())
    return {
        "bandwidth": large.numel() * 4 / min(_times(world, lambda: world.sum(large))),
        "latency": min(_times(world, lambda: world.sum(small))),
        "wrong": float(world.agree(int(not correct))),
    }


def exchange_seconds(world: World, size: int) -> dict[str, float | str]:
    """Seconds of an all-reduce of `size` bytes, of a tiny one and of a decision; the backend. Called by every rank."""
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
    """Seconds of one exchange, measured several times."""
    times = []
    exchange()  # The first one opens connections, and is not measured.
    for _ in range(_REPEATS):
        world.barrier("start of a measurement")
        # The clock is the host's, so the device's queue must be empty at both ends.
        world.device_barrier()
        start = time.perf_counter()
        for _ in range(in_a_row):
            exchange()
        world.device_barrier()
        times.append((time.perf_counter() - start) / in_a_row)
    return times
