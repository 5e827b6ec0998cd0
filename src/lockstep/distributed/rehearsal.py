"""Simulates one rank of a larger world: it does that rank's work, and its collectives are counted, not executed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.distributed.lanes import Lanes
from lockstep.distributed.profiling import mean_over_ranks
from lockstep.distributed.world import World, add_in_order


@dataclass
class Tally:
    """The collectives of one rank, and the bytes they move."""

    sums: int = 0
    """All-reduces."""
    sum_bytes: int = 0
    """Total size of the reduced tensors."""
    gathers: int = 0
    """All-gathers of the lanes' tensors (`exact`)."""
    gather_bytes: int = 0
    """Bytes each rank holds afterwards, its own included."""
    flags: int = 0
    """Small exchanges of flags and JSON, through host memory."""
    largest: int = 0
    """Bytes of the largest all-reduce or all-gather."""

    def add_sum(self, moved: int) -> None:
        """Count an all-reduce of `moved` bytes."""
        self.sums += 1
        self.sum_bytes += moved
        self.largest = max(self.largest, moved)

    def add_gather(self, moved: int) -> None:
        """Count an all-gather after which each rank holds `moved` bytes."""
        self.gathers += 1
        self.gather_bytes += moved
        self.largest = max(self.largest, moved)

    def take(self) -> dict[str, int]:
        """The counts since the last call, which are then reset."""
        counted = asdict(self)
        for name in counted:
            setattr(self, name, 0)
        return counted


@dataclass(frozen=True)
class RehearsedWorld(World):
    """Rank 0 of a simulated world whose other ranks hold the same values, so that collectives take no time.

    It computes what a rank of the real world would compute, in the same pieces: its share of the lanes, and in `exact`
    the sum over all lanes' gradients. Rank 0, because it has the largest share.
    """

    tally: Tally = field(default_factory=Tally, compare=False)

    @classmethod
    def of(cls, world: World, size: int) -> "RehearsedWorld":
        """Rank 0 of `size`; `world` has one rank and a process group, which DDP needs."""
        assert world.size == 1
        assert world.data_group is not None
        same = {item.name: getattr(world, item.name) for item in fields(World)}
        return cls(**{**same, "size": size, "lanes": Lanes.split(size, 0, size, "fast")})

    def agree(self, flag: int) -> int:
        """See World."""
        self.tally.flags += 1
        return flag

    def gather_json(self, value: Any) -> list[Any]:
        """See World."""
        self.tally.flags += 2  # Two all-gathers: lengths, then texts.
        return [value] * self.size

    def sum(self, tensor: Tensor) -> Tensor:
        """See World."""
        self.tally.add_sum(_bytes(tensor))
        # The sum over `size` ranks with equal values.
        return tensor.mul_(self.size)

    def total(self, parts: Sequence[Tensor] | Tensor) -> Tensor:
        """See World."""
        if self.sync == "fast":
            return super().total(parts)  # Calls `sum`, which is counted.
        rows = parts if isinstance(parts, Tensor) else torch.stack(tuple(parts))
        # all_gather pads: ranks with fewer lanes send as many rows as the others.
        self.tally.add_gather(_bytes(rows[0]) * max(self.lanes.counts) * self.size)
        # This rank's rows stand in for those of all lanes, so the addition takes as long as the real one.
        return add_in_order(rows[torch.arange(self.lanes.total, device=rows.device) % len(rows)])

    def data_parallel(self, module: nn.Module) -> DistributedDataParallel:
        """See World; DDP's gradient buckets go through this world's `sum`."""
        wrapped = super().data_parallel(module)
        wrapped.register_comm_hook(self, mean_over_ranks)
        if buffers := sum(map(_bytes, module.buffers())):
            # DDP broadcasts rank 0's buffers before each forward pass, at about the cost of an all-reduce.
            wrapped.register_forward_pre_hook(lambda *_: self.tally.add_sum(buffers))
        return wrapped


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
