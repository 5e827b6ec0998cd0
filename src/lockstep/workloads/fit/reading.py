"""Reads the batches of a pass ahead, in this process or in worker processes; errors arrive as they were raised."""

import signal
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from lockstep.errors import LockstepError, RunFailed, from_json, to_json
from lockstep.workloads.fit.items import Items, stacked
from lockstep.workloads.fit.tree import Tree

Request = tuple[int, list[int]]
"""The epoch, and the numbers of the items of a batch; some may be there more than once."""
_ERROR = "lockstep error"


class _Requests(Sampler[Request]):
    """The batches to read next; changed between passes, as the workers stay."""

    def __init__(self) -> None:
        self.epoch = 0
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[Request]:
        for batch in self.batches:
            yield self.epoch, batch

    def __len__(self) -> int:
        return len(self.batches)


class _ByNumber(Dataset[Any]):
    """Batches of a map-style dataset."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def __getitem__(self, request: Request) -> Any:
        epoch, numbers = request
        different = sorted(set(numbers))
        try:
            read = dict(zip(different, self._items.read(different, epoch), strict=True))
        except LockstepError as error:
            # Raised by the reader: torch would wrap it in a traceback of the worker.
            return {_ERROR: to_json(error)}
        return stacked([read[number] for number in numbers])


class _InOrder(IterableDataset[Any]):
    """Batches of an iterable dataset. All of it is iterated over; what other ranks need is dropped."""

    def __init__(self, items: Items, requests: _Requests) -> None:
        self._items, self._requests = items, requests

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batches()
        except LockstepError as error:
            yield {_ERROR: to_json(error)}

    def _batches(self) -> Iterator[Tree]:
        stream = enumerate(self._items.iterated(self._requests.epoch))
        for batch in self._requests.batches:
            wanted = set(batch)
            read: dict[int, Tree] = {}
            while len(read) < len(wanted):
                number, item = next(stream, (-1, None))
                if number < 0:
                    short = f"{self._items.name}: ended early, and had {self._items.count} items before"
                    raise RunFailed(f"{short}; it must give the same items in every epoch")
                if number in wanted:
                    read[number] = self._items.checked(number, item)
            yield stacked([read[number] for number in batch])


class Reader:
    """Reads batch after batch of a dataset, ahead of their use if there are workers."""

    def __init__(self, items: Items, workers: int, pinned: bool = False) -> None:
        """`workers`: processes that read; 0 = this one. `pinned`: into memory that a GPU can copy from directly."""
        self._name, self._requests = items.name, _Requests()
        source = _InOrder(items, self._requests) if items.in_order else _ByNumber(items)
        # A stream has one place, so more processes than one could not share it.
        workers = min(workers, 1) if items.in_order else workers
        loader: DataLoader[Any] = DataLoader(
            source,
            batch_size=None,  # a request is a whole batch
            sampler=None if items.in_order else self._requests,
            num_workers=workers,
            worker_init_fn=_begin_worker if workers else None,
            # A worker of a stream is told the batches when it starts.
            persistent_workers=bool(workers) and not items.in_order,
            pin_memory=pinned,
            # torch seeds its workers from the global generator otherwise, which nobody else may move.
            generator=torch.Generator().manual_seed(0),
        )
        # The loader and its iterator, which ends the workers when it is deleted. A learner is deleted by the garbage
        # collector, which would close the workers' queues first, and then wait for workers that hear nothing.
        self._open: dict[str, Any] = {"loader": loader, "batches": iter(())}
        weakref.finalize(self, self._open.clear)

    def begin(self, epoch: int, batches: list[list[int]]) -> None:
        """Read these batches next; what was begun before is given up."""
        self._requests.epoch, self._requests.batches = epoch, batches
        self._open["batches"] = iter(self._open["loader"])

    def next(self) -> Tree:
        """The next batch, items first."""
        try:
            found = next(self._open["batches"])
        except RuntimeError as error:
            if "worker" not in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise RunFailed(f"{self._name}: a worker process ended ({reason}); the same command continues") from error
        if isinstance(found, dict) and _ERROR in found:
            raise from_json(found[_ERROR])
        return found


def _begin_worker(_: int) -> None:
    # Forked from a rank, which saves a checkpoint on these signals. Ctrl-C reaches all processes of a terminal, and the
    # rank ends its workers itself.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
