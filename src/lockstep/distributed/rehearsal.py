"""A rank of a larger world than there is: it does its part of the work, and its exchanges are counted, not made."""

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
    """Exchanges of one rank, and the bytes that they move."""

    sums: int = 0
    """Sums of a tensor over ranks."""
    sum_bytes: int = 0
    """Bytes of the tensors that were added up."""
    gathers: int = 0
    """Tensors of which every rank gets all lanes' (`exact`)."""
    gather_bytes: int = 0
    """Bytes that every rank has afterwards, its own among them."""
    flags: int = 0
    """Decisions and JSON, which travel in host memory."""
    largest: int = 0
    """Bytes of the largest of them."""

    def add_sum(self, moved: int) -> None:
        """Count a sum of so many bytes."""
        self.sums += 1
        self.sum_bytes += moved
        self.largest = max(self.largest, moved)

    def add_gather(self, moved: int) -> None:
        """Count a gathering after which every rank has so many bytes."""
        self.gathers += 1
        self.gather_bytes += moved
        self.largest = max(self.largest, moved)

    def take(self) -> dict[str, int]:
        """What was counted since the last call."""
        counted = asdict(self)
        for name in counted:
            setattr(self, name, 0)
        return counted


@dataclass(frozen=True)
class RehearsedWorld(World):
    """Rank 0 of a world whose other ranks are imagined to hold what it holds, so that no exchange takes time.

    What this rank computes, and in which pieces, is what a rank of the real world computes: it has its share of the
    lanes, and in `exact` it adds up all lanes' gradients.
    """

    tally: Tally = field(default_factory=Tally, compare=False)

    @classmethod
    def of(cls, world: World, size: int) -> "RehearsedWorld":
        """Rank 0 of `size`; `world` has one rank, with a group in which DDP finds nobody but itself."""
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
        self.tally.flags += 2  # The lengths, then the texts.
        return [value] * self.size

    def sum(self, tensor: Tensor) -> Tensor:
        """See World."""
        self.tally.add_sum(_bytes(tensor))
        return tensor.mul_(self.size)

    def total(self, parts: Sequence[Tensor]) -> Tensor:
        """See World."""
        if self.sync == "fast":
            return super().total(parts)  # It is a `sum`, counted there.
        rows = torch.stack(tuple(parts))
        # Ranks with fewer lanes than others send as many rows nevertheless.
        self.tally.add_gather(_bytes(rows[0]) * max(self.lanes.counts) * self.size)
        return add_in_order(rows[torch.arange(self.lanes.total, device=rows.device) % len(rows)])

    def data_parallel(self, module: nn.Module) -> DistributedDataParallel:
        """See World; DDP's buckets go through this world's `sum`."""
        wrapped = super().data_parallel(module)
        wrapped.register_comm_hook(self, mean_over_ranks)
        if buffers := sum(map(_bytes, module.buffers())):
            # DDP hands out rank 0's buffers before a forward pass, which costs about as much as a sum.
            wrapped.register_forward_pre_hook(lambda *_: self.tally.add_sum(buffers))
        return wrapped


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
