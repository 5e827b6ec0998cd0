"""The world: all processes of a run, as a value that is passed down. With one rank, collectives are the identity."""

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.distributed import collectives, nccl
from lockstep.distributed.lanes import Lanes, Sync
from lockstep.distributed.membership import check_members
from lockstep.distributed.store import launched_store
from lockstep.errors import LockstepError, RunFailed, UserError, from_json, to_json
from lockstep.launch import environment
from lockstep.launch.environment import all_on_this_machine, launched_rank, launched_size, local_rank
from lockstep.launch.machines import interface_of
from lockstep.launch.sockets import shut_afterwards

_SEAT = "lockstep/seat/"
"""Prefix of the store's keys under which ranks publish their facts for the choice of the backend."""
_CACHED_NUMBERS = 16_384
"""So many floats, and as many that are added to them, fit into the cache of any core."""


T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """All ranks of a run. Its methods are called by every rank; with one rank they are the identity."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sync: Sync = "fast"
    lanes: Lanes = field(default_factory=lambda: Lanes.split(1, 0, 1, "fast"))
    timeout: float = 600.0
    data_group: dist.ProcessGroup | None = None
    """For tensors: NCCL on GPUs, else gloo."""
    control_group: dist.ProcessGroup | None = None
    """For flags and JSON in host memory: always gloo, so that a decision does not wait for queued GPU kernels."""
    side_group: dist.ProcessGroup | None = None
    """For one background thread (the checkpointer): always gloo. Two threads in one group would mix up messages."""
    carrier: nccl.Carrier = field(default_factory=nccl.Carrier)
    """The backend of the data group, and why it was chosen."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes files and prints: rank 0."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is one rank: no collective then splits a recorded CUDA graph."""
        return self.size == 1

    def with_lanes(self, total: int, sync: Sync) -> "World":
        """This world with the run's lanes assigned to ranks."""
        # `auto` has been decided by now.
        assert sync in ("fast", "exact"), sync
        return replace(self, sync=sync, lanes=Lanes.split(total, self.rank, self.size, sync))

    def agree(self, flag: int) -> int:
        """The maximum of a flag over all ranks: how every decision of the run is made. Called by every rank."""
        return flag if self.control_group is None else collectives.maximum(flag, self.control_group)

    def gather_json(self, value: Any) -> list[Any]:
        """Every rank's JSON value, in rank order. Called by every rank."""
        return [value] if self.control_group is None else collectives.gather_json(value, self.size, self.control_group)

    def from_leader(self, value: Any) -> Any:
        """Broadcast rank 0's JSON value; the others' argument is ignored. Called by every rank."""
        return self.gather_json(value if self.leads else None)[0]

    def led(self, work: Callable[[], T]) -> T:
        """Do something on rank 0 alone; every rank returns its result (JSON), or raises its LockstepError.

        Called by every rank.
        """
        outcome: dict[str, Any] = {}
        if self.leads:
            try:
                outcome["result"] = work()
            except LockstepError as error:
                outcome["error"] = to_json(error)
        outcome = self.from_leader(outcome)
        if "error" in outcome:
            raise from_json(outcome["error"])
        return outcome["result"]

    def barrier(self, name: str) -> None:
        """Wait until every rank is here. Called by every rank."""
        if self.control_group is not None:
            collectives.named_barrier(name, self.timeout, self.control_group)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place; the order of additions is not fixed. Called by every rank."""
        return tensor if self.data_group is None else collectives.sum_over_ranks(tensor, self.data_group)

    def total(self, parts: Sequence[Tensor] | Tensor) -> Tensor:
        """The sum over the world of one tensor per cohort; in `exact` added in lane order. Called by every rank.

        `parts`: a list, or one tensor with cohorts first.
        """
        if self.sync == "fast":
            (part,) = parts  # `fast` has one cohort per rank.
            return self.sum(part.clone())  # `sum` works in place, and the caller keeps its part.
        rows = parts if isinstance(parts, Tensor) else torch.stack(tuple(parts))
        if self.data_group is not None:
            rows = collectives.gather_rows(rows, self.lanes.counts, self.data_group)
        return add_in_order(rows)

    def data_parallel(self, module: nn.Module) -> DistributedDataParallel:
        """The module in DDP, which averages gradients over ranks in each backward pass. Called by every rank."""
        return DistributedDataParallel(module, process_group=self.data_group, gradient_as_bucket_view=True)

    def of_first_ranks(self, size: int) -> "World | None":
        """A world of the first `size` ranks; None on the others. Called by every rank."""
        if size == self.size:
            return self
        groups: list[dist.ProcessGroup | None] = [None] * 3
        if size > 1:
            # Every rank must take part in creating a group, member or not. torch names a group that only its members
            # create (use_local_synchronization) after the number of groups each has, on which ranks would disagree.
            ranks, limit = list(range(size)), timedelta(seconds=self.timeout)
            with shut_afterwards():
                groups = [dist.new_group(ranks, limit, backend=backend) for backend in (None, "gloo", "gloo")]
                for group in groups[1:] if self.rank < size else []:
                    assert group is not None
                    check_members(group, self.rank, size, self.timeout)
        if self.rank >= size:
            return None
        data, control, side = groups
        lanes = Lanes.split(self.lanes.total, self.rank, size, self.sync)
        return replace(self, size=size, data_group=data, control_group=control, side_group=side, lanes=lanes)

    def for_background(self) -> "World":
        """The same ranks for the one background thread: its collectives never mix with those of the training."""
        return replace(self, data_group=self.side_group, control_group=self.side_group)

    def device_barrier(self) -> None:
        """Wait for this rank's queued kernels, so that the wall clock can be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def check_replicas(self, fingerprint: str, when: str) -> None:
        """RunFailed, naming the ranks, unless all ranks have the same fingerprint of weights. Called by every rank."""
        fingerprints = self.gather_json(fingerprint)
        strays = [rank for rank, other in enumerate(fingerprints) if other != fingerprints[0]]
        if strays:
            raise RunFailed(
                f"replicas diverged at {when}: rank(s) {', '.join(map(str, strays))} hold other weights than rank 0 "
                f"({fingerprints[strays[0]][:12]} instead of {fingerprints[0][:12]}); the newest checkpoint is sound"
            )


def add_in_order(rows: Tensor) -> Tensor:
    """Add rows one by one, first to last, so that rounding depends on their order only."""
    # Not rows.sum(0): its order of additions depends on shape, device and thread count.
    flat = rows.reshape(len(rows), -1)
    total = flat[0].clone()
    # On a CPU block by block, so that the sum stays in the cache. On a GPU that would only be more kernels.
    block = _CACHED_NUMBERS if rows.device.type == "cpu" else max(1, len(total))
    for part, others in zip(total.split(block), flat[1:].split(block, dim=1), strict=True):
        for other in others:
            part += other
    return total.view(rows.shape[1:])


@contextlib.contextmanager
def open_world(device: str = "auto", timeout: float = 600.0) -> Iterator[World]:
    """The world this process was launched into, closed on exit. Called by every rank."""
    if launched_size() == 1:
        # No process group at all: nothing to set up, to wait for or to fail.
        yield World(device=choose_device(device, 0), timeout=timeout)
        return
    rank, size = launched_rank(), launched_size()
    chosen = choose_device(device, local_rank(), size)
    with join(rank, size, chosen, launched_store(rank, timeout), timeout) as world:
        yield world


@contextlib.contextmanager
def join(rank: int, size: int, device: torch.device, store: dist.Store, timeout: float) -> Iterator[World]:
    """A world of `size` ranks that connect through a store. Called by every rank.

    Holding `store` keeps it alive until the world is closed, which torch itself does not do.
    """
    # NCCL, and kernels without an explicit device, use the current one, which is GPU 0 by default.
    if device.type == "cuda":
        torch.cuda.set_device(device)
    _choose_gloo_interface()
    with shut_afterwards():
        carrier, (data, control, side) = _make_groups(rank, size, device, store, timeout)
        # Before any other data is exchanged. If gloo carries the tensors, `control` is the data group as well; a group
        # of NCCL checks a random number of its own, which was exchanged through the store.
        for group in (control, side):
            check_members(group, rank, size, timeout)
    world = World(rank, size, device, timeout=timeout, data_group=data, control_group=control, side_group=side)
    yield replace(world, carrier=carrier).with_lanes(size, "fast")
    # Skipped after an exception: the process is about to exit, and destroying an NCCL group would first wait for peers
    # that may never answer.
    dist.destroy_process_group()
    # A gloo thread releases its last tensor, and needs the GIL for it, a moment after the collective has returned. If
    # the interpreter is already shutting down by then, the process aborts (pytorch/pytorch#190489).
    time.sleep(0.05)


Groups = tuple[dist.ProcessGroup, dist.ProcessGroup, dist.ProcessGroup]


def _make_groups(
    rank: int, size: int, device: torch.device, store: dist.Store, timeout: float
) -> tuple[nccl.Carrier, Groups]:
    """The backend, and the groups for tensors, for flags, and for the background thread. Called by every rank."""
    limit = timedelta(seconds=timeout)
    try:
        carrier = nccl.backend_for(_seats(nccl.RankFacts.of(device), rank, size, store))
        # A plain "gloo" string: monitored_barrier refuses a group made as "cpu:gloo".
        dist.init_process_group(carrier.backend, store=store, rank=rank, world_size=size, timeout=limit)
    except (RuntimeError, dist.DistError) as error:
        raise RunFailed(f"rank {rank} could not join a world of {size}: {str(error).splitlines()[0]}") from error
    data = dist.group.WORLD
    assert data is not None
    control = data if carrier.backend == "gloo" else dist.new_group(backend="gloo", timeout=limit)
    return carrier, (data, control, dist.new_group(backend="gloo", timeout=limit))


def _seats(own: nccl.RankFacts, rank: int, size: int, store: dist.Store) -> list[nccl.RankFacts]:
    """The facts of all ranks, exchanged through the store because no group exists yet. Called by every rank."""
    store.set(f"{_SEAT}{rank}", json.dumps(asdict(own)))
    found = [json.loads(store.get(f"{_SEAT}{other}")) for other in range(size)]
    # JSON has turned the tuple into a list.
    return [nccl.RankFacts(**{**seat, "nccl": tuple(seat["nccl"])}) for seat in found]


def choose_device(name: str, local_rank: int, size: int = 1) -> torch.device:
    """The device of one rank of `size`: its own GPU if there are enough, else a shared GPU, else the CPU."""
    if name == "auto":
        # gloo carries no tensors of an Apple GPU, so several ranks on a Mac compute on its cores.
        mps = torch.backends.mps.is_available() and size == 1
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise UserError("device 'cuda': no NVIDIA GPU is visible here; use --device cpu or check nvidia-smi")
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError("device 'mps': no Apple GPU is visible here; use --device cpu")
    return torch.device(name)


def describe_device(device: torch.device) -> str:
    """A readable name of a device, for the plan."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "Apple GPU (MPS)"
    return f"CPU ({platform.machine()})"


def _choose_gloo_interface() -> None:
    """Make gloo use loopback if all ranks are on this machine, else the interface that reached the rendezvous."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    if all_on_this_machine():
        name = "lo" if Path("/sys/class/net/lo").exists() else None
    else:
        name = interface_of(os.environ.get(environment.ADDRESS, ""))
    if name is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = name
