"""One rank of a pool: joins the world, then runs one function for each JSON line of stdin and replies with one."""

import functools
import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from lockstep.distributed import collectives, debug_level, nccl
from lockstep.distributed.store import file_store
from lockstep.distributed.world import World, choose_device, join
from lockstep.launch.rank_process import die_with_parent

_TIMEOUT = 60.0
_CHECK_TIMEOUT = 2.0
"""Seconds for the barrier of `in_step`; short, since ranks that are in step reach it at once."""


def serve(rank: int, size: int, device: str, store: str, orders: IO[str], replies: IO[str]) -> None:
    """Execute orders until the parent closes the pipe."""
    with join(
        rank, size, choose_device(device, rank, size), file_store(Path(store), size, _TIMEOUT), _TIMEOUT
    ) as world:
        # Worlds of the first n ranks are kept: creating their groups takes longer than most calls.
        worlds: dict[int, World | None] = {size: world}
        # Tells the parent that this rank has joined.
        _reply(replies, rank, {"result": None})
        for line in orders:
            _reply(replies, rank, _execute(json.loads(line), world, worlds))


def _execute(order: dict[str, Any], world: World, worlds: dict[int, World | None]) -> dict[str, Any]:
    try:
        count = order["ranks"]
        if count not in worlds:
            worlds[count] = world.of_first_ranks(count)
        part = worlds[count]
        if part is None:
            return {"result": None}  # This rank is not part of the smaller world.
        return {"result": find(**order["function"])(part, *order["args"], **order["kwargs"])}
    except Exception as error:
        now = time.time()
        trace = traceback.format_exc()
        return {"kind": type(error).__name__, "message": str(error), "trace": trace, "time": now}


def _reply(replies: IO[str], rank: int, answer: dict[str, Any]) -> None:
    replies.write(json.dumps({"rank": rank, **answer}) + "\n")
    replies.flush()


@functools.cache
def find(name: str, module: str = "", file: str = "") -> Callable[..., Any]:
    """Look up the function that the parent named."""
    return getattr(_load(Path(file)) if file else importlib.import_module(module), name)


@functools.cache
def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it is executed, as `import` does: dataclasses look their module up in sys.modules.
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def in_step(world: World) -> None:
    """Return if all ranks have issued the same collectives so far; else the barrier fails or times out."""
    for group in (world.control_group, world.data_group, world.side_group):
        if group is not None:
            collectives.named_barrier("pool", _CHECK_TIMEOUT, group)


def main(rank: str, parent: str, size: str, device: str, threads: str, store: str) -> None:
    """The process of one rank: orders arrive on stdin, replies go to stdout, and prints of functions to stderr."""
    die_with_parent(int(parent))
    # Functions must neither read orders nor write between replies, so stdin and stdout are moved out of their reach.
    orders, replies = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    torch.set_num_threads(int(threads))
    # Before the first use of CUDA, or NCCL and the allocator would not see the variables.
    nccl.apply(nccl.detect(ranks=int(size)))
    debug_level.lower()
    serve(int(rank), int(size), device, store, orders, replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
