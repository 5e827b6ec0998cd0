"""One rank of a pool: joins the world, then runs the functions it is told, one JSON line in, one JSON line out."""

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

from lockstep.distributed import collectives, nccl
from lockstep.distributed.store import file_store
from lockstep.distributed.world import World, choose_device, join
from lockstep.launch.rank_process import die_with_parent

_TIMEOUT = 60.0
_CHECK_TIMEOUT = 2.0


def serve(rank: int, size: int, device: str, store: str, orders: IO[str], replies: IO[str]) -> None:
    """Take orders until the parent closes the pipe."""
    with join(rank, size, choose_device(device, rank), file_store(Path(store), size, _TIMEOUT), _TIMEOUT) as world:
        worlds: dict[int, World | None] = {size: world}
        _reply(replies, rank, {"result": None})
        for line in orders:
            _reply(replies, rank, _obey(json.loads(line), world, worlds))


def _obey(order: dict[str, Any], world: World, worlds: dict[int, World | None]) -> dict[str, Any]:
    try:
        count = order["ranks"]
        if count not in worlds:
            worlds[count] = world.first(count)
        part = worlds[count]
        if part is None:
            return {"result": None}
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
    """The function that the parent named."""
    return getattr(_load(Path(file)) if file else importlib.import_module(module), name)


@functools.cache
def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def in_step(world: World) -> None:
    """Return if all ranks have made the same exchanges so far; one that made fewer would wait for ever."""
    for group in (world.control_group, world.data_group, world.side_group):
        if group is not None:
            collectives.meet("pool", _CHECK_TIMEOUT, group)


def main(rank: str, parent: str, size: str, device: str, threads: str, store: str) -> None:
    """Run as a process of its own; orders come in by stdin, and what functions print goes to stderr."""
    die_with_parent(int(parent))
    orders, replies = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    torch.set_num_threads(int(threads))
    nccl.apply(nccl.detect(ranks=int(size)))
    serve(int(rank), int(size), device, store, orders, replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
