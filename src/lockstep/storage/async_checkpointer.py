"""The async checkpointer: writes checkpoints on a thread of its own while training goes on."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from lockstep.storage import checkpoint, checkpoint_retention
from lockstep.storage.checkpoint import CheckpointFailed, Snapshot
from lockstep.storage.tensor_file import stored_size

if TYPE_CHECKING:
    from lockstep.distributed.world import World

_SHARE_OF_FREE_MEMORY = 0.5


@dataclass(frozen=True)
class Order:
    """One checkpoint to write."""

    snapshot: Snapshot
    step: int
    extra: dict[str, Any]


class AsyncCheckpointer:
    """Copies a run's state into host memory, which is all that training waits for, and writes the copy.

    Every method is called by every rank. The ranks' threads meet in a group of their own, so that their meetings and
    the training's each keep their order. Old checkpoints go only after all ranks know the new one to be complete.
    """

    def __init__(
        self,
        root: Path,
        world: "World",
        workload: str,
        *,
        keep: int,
        written: Callable[[Order], None],
        say: Callable[[str], None],
        may_publish: Callable[[], None] = lambda: None,
    ) -> None:
        """`written` is told of every checkpoint that stands, on rank 0; `say` of every one that failed."""
        self._root, self._workload, self._keep = root, workload, keep
        self._world = world.apart()
        self._written, self._say, self._may_publish = written, say, may_publish
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def save(self, order: Order) -> None:
        """Take a copy and begin to write it; the one before is waited for. A disk that refuses costs a warning."""
        self._join()
        if isinstance(self._failure, CheckpointFailed):
            self._failure = None
        self._raise_failure()
        copied = _fits_twice(order.snapshot)
        if copied:
            order = Order(_copy(order.snapshot), order.step, order.extra)
        self._thread = threading.Thread(target=self._write, args=(order,), name="checkpointer", daemon=True)
        self._thread.start()
        if not copied:
            self._join()

    def settle(self) -> None:
        """Wait for the last checkpoint; raises CheckpointFailed where it could not be written."""
        self._join()
        self._raise_failure()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _write(self, order: Order) -> None:
        try:
            checkpoint.save(
                self._root,
                order.snapshot,
                world=self._world,
                step=order.step,
                workload=self._workload,
                extra=order.extra,
                may_publish=self._may_publish,
            )
            if self._world.leads:
                checkpoint_retention.prune(self._root, self._keep, protect=set())
                self._written(order)
        except CheckpointFailed as failure:
            self._failure = failure
            self._say(f"warning: {failure}")
        except Exception as failure:  # raised again where the training waits for this thread
            self._failure = failure


def _fits_twice(snapshot: Snapshot) -> bool:
    """Whether a copy leaves room in host memory; where it does not, the training waits for the disk instead."""
    parts = [snapshot.model, snapshot.optimizer, *snapshot.lanes.values()]
    return sum(map(stored_size, parts)) < _SHARE_OF_FREE_MEMORY * psutil.virtual_memory().available


def _copy(snapshot: Snapshot) -> Snapshot:
    """The state as it is now, in memory that the training does not touch."""

    def copied(tensors: dict[str, Any]) -> dict[str, Any]:
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

    lanes = {lane: copied(tensors) for lane, tensors in snapshot.lanes.items()}
    return Snapshot(copied(snapshot.model), copied(snapshot.optimizer), dict(snapshot.state), lanes)
