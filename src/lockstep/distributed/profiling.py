"""Where ranks lose time to each other: waiting for the slowest rank (idle), and the collective itself (sync)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.compute.stopwatch import Stopwatch
from lockstep.distributed.world import World

Result = TypeVar("Result")


@dataclass(frozen=True)
class MeasuredWorld(World):
    """A world with a timed barrier before each timed collective. Slower than a plain one."""

    watch: Stopwatch = field(default_factory=lambda: Stopwatch(torch.device("cpu")), compare=False)
    """This rank's seconds, split into `idle` and `sync`."""

    @classmethod
    def of(cls, world: World) -> "MeasuredWorld":
        """A measured world of the same ranks."""
        same = {item.name: getattr(world, item.name) for item in fields(World)}
        return cls(**same, watch=Stopwatch(world.device, precise=True))

    def agree(self, flag: int) -> int:
        """See World. Called by every rank."""
        return self._exchange(lambda: World.agree(self, flag))

    def gather_json(self, value: Any) -> list[Any]:
        """See World. Called by every rank."""
        return self._exchange(lambda: World.gather_json(self, value))

    def sum(self, tensor: Tensor) -> Tensor:
        """See World. Called by every rank."""
        return self._exchange(lambda: World.sum(self, tensor))

    def total(self, parts: Sequence[Tensor] | Tensor) -> Tensor:
        """See World. Called by every rank."""
        if self.sync == "fast":
            return super().total(parts)  # Calls `sum`, which is measured.
        return self._exchange(lambda: World.total(self, parts))

    def data_parallel(self, module: nn.Module) -> DistributedDataParallel:
        """See World; DDP's all-reduces go through this world's `sum`. Called by every rank."""
        wrapped = super().data_parallel(module)
        wrapped.register_comm_hook(self, mean_over_ranks)
        return wrapped

    def _exchange(self, exchange: Callable[[], Result]) -> Result:
        if self.size == 1:
            return exchange()
        # Let this rank's own kernels finish first: that is work, not waiting.
        self.device_barrier()
        # The flag exchange acts as a barrier: it returns once the slowest rank has arrived.
        with self.watch.part("idle"):
            World.agree(self, 0)
        with self.watch.part("sync"):
            return exchange()


def mean_over_ranks(world: World, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's default reduction of a gradient bucket, but synchronous, so that it can be measured or counted."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(world.sum(bucket.buffer().div_(world.size)))
    return done
