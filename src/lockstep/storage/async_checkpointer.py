"""The async checkpointer: writes checkpoints on a background thread while training continues."""

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

# A copy may take at most this share of the free host memory: replay buffers can be larger than what is left.
_SHARE_OF_FREE_MEMORY = 0.5


@dataclass(frozen=True)
class SaveRequest:
    """One checkpoint to write."""

    snapshot: Snapshot
    step: int
    extra: dict[str, Any]

    def fits_twice(self) -> bool:
        """Whether this host's memory has room for a copy."""
        parts = [self.snapshot.model, self.snapshot.optimizer, *self.snapshot.lanes.values()]
        return sum(map(stored_size, parts)) < _SHARE_OF_FREE_MEMORY * psutil.virtual_memory().available

    def copy(self) -> "SaveRequest":
        """The same in memory that training does not touch."""
        return SaveRequest(_copy(self.snapshot), self.step, self.extra)


class AsyncCheckpointer:
    """Copies a run's state to host memory, which is all that training waits for, and writes the copy in the background.

    Every method is called by every rank. The checkpoint threads have a process group of their own, so their collectives
    never mix with those of training. Old checkpoints are removed only once all ranks know that the new one is complete.
    """

    def __init__(
        self,
        root: Path,
        world: "World",
        workload: str,
        *,
        keep: int,
        written: Callable[[SaveRequest], None],
        say: Callable[[str], None],
        may_publish: Callable[[], None] = lambda: None,
    ) -> None:
        """`written` is called on rank 0 after each completed checkpoint; `say` on every rank with each failure."""
        self._root, self._workload, self._keep = root, workload, keep
        # Two threads that share one process group would match up each other's messages.
        self._world = world.for_background()
        self._written, self._say, self._may_publish = written, say, may_publish
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def save(self, order: SaveRequest) -> None:
        """Copy the state and start writing it, after waiting for the previous write. A failed write costs a warning."""
        # At most one write in flight: two would need memory for two copies, and could finish out of order.
        self._join()
        if isinstance(self._failure, CheckpointFailed):
            # Already reported by the thread. The next checkpoint may succeed, so training continues.
            self._failure = None
        self._raise_failure()
        copied = order.fits_twice()
        if copied:
            order = order.copy()
        # Daemon: a write that hangs must not keep a failing process alive.
        self._thread = threading.Thread(target=self._write, args=(order,), name="checkpointer", daemon=True)
        self._thread.start()
        if not copied:
            # Without room for a copy the thread reads the live tensors, which training must not change until it is
            # done. Each rank decides this by its own memory: the thread's collectives are the same either way.
            self._join()

    def settle(self) -> None:
        """Wait for the last checkpoint; raises CheckpointFailed if it could not be written."""
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

    def _write(self, order: SaveRequest) -> None:
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
            # `save` has returned, so every rank knows that the new checkpoint is complete: old ones may go.
            if self._world.leads:
                checkpoint_retention.prune(self._root, self._keep, protect=set())
                self._written(order)
        except CheckpointFailed as failure:
            self._failure = failure
            self._say(f"warning: {failure}")
        except Exception as failure:  # re-raised by `save` or `settle`, in the thread that trains
            self._failure = failure


def _copy(snapshot: Snapshot) -> Snapshot:
    """The state as it is now, in memory that training does not touch."""

    def copied(tensors: dict[str, Any]) -> dict[str, Any]:
        # copy=True: without it a tensor that is on the CPU already would stay shared with training.
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

    lanes = {lane: copied(tensors) for lane, tensors in snapshot.lanes.items()}
    return Snapshot(copied(snapshot.model), copied(snapshot.optimizer), dict(snapshot.state), lanes)
