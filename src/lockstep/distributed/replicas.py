"""Replicas: how the local gradients of a loss module become the world's gradient, identical on every rank.

A loss module's forward takes a batch and returns its loss and detached metrics. Both are *shares*: sums over the
batch's samples divided by the sample count of the whole world. So adding the shares of all cohorts gives the global
mean, however uneven the cohorts are.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.compute import torch_private
from lockstep.compute.branches import Branches
from lockstep.compute.precision import Precision
from lockstep.distributed.world import World

Batch = Any
Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class CohortMetrics:
    """The metrics of all cohorts of a rank as one tensor, so that adding them up is one operation."""

    names: tuple[str, ...]
    values: Tensor
    """(C, N): a row for each cohort, a column for each name."""

    @classmethod
    def of(cls, cohorts: Sequence[Metrics]) -> "CohortMetrics":
        """Of each cohort's metrics; all have the same names."""
        names = tuple(cohorts[0])
        if not names:
            return cls((), torch.zeros(len(cohorts), 0))
        return cls(names, torch.stack([torch.stack([found[name] for name in names]) for found in cohorts]))

    def beside(self, other: "CohortMetrics") -> "CohortMetrics":
        """These and another loss's metrics of the same cohorts."""
        # A loss without metrics has no tensor that says which device it is on.
        if not (self.names and other.names):
            return self if self.names else other
        return CohortMetrics(self.names + other.names, torch.cat((self.values, other.values), dim=1))


class Replica(Protocol):
    """One rank's copy of a loss module."""

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """Put the world's gradient into every parameter's `grad`; returns the cohorts' metrics. Called by every rank.

        cohorts: one entry per cohort of this rank, each a list of micro-batches whose gradients are accumulated.
        """


class DDPReplica:
    """`fast`: DistributedDataParallel around the loss module, so the forward it hooks into is the one that trains."""

    def __init__(self, loss: nn.Module, world: World, precision: Precision) -> None:
        self._world = world
        self._precision = precision
        self._parameters = list(loss.parameters())
        self._module = loss
        # With one rank DDP would only cost time; the gradient is already the world's.
        if world.size > 1:
            self._module = world.data_parallel(loss)

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See Replica. DDP averages over ranks, but shares must be summed: the loss is multiplied by the world size."""
        (micro_batches,) = cohorts
        for parameter in self._parameters:
            # None, not zero: the first backward then stores its gradient instead of adding to one.
            parameter.grad = None
        metrics: list[Metrics] = []
        for number, batch in enumerate(micro_batches, start=1):
            # Gradients accumulate locally; only the last micro-batch triggers the all-reduce.
            with self._without_sync(number < len(micro_batches)):
                with self._precision.autocast():
                    loss, found = self._module(batch)
                (loss * (self._precision.scale * self._world.size)).backward()
            metrics.append(found)
        # Once, after the reduction: the loss scale is the same on every rank.
        self._precision.unscale(self._parameters)
        return CohortMetrics.of([add_metrics(metrics)])

    def _without_sync(self, skip: bool) -> contextlib.AbstractContextManager[None]:
        if skip and isinstance(self._module, DistributedDataParallel):
            return self._module.no_sync()
        return contextlib.nullcontext()


class FlatGradient:
    """All gradients of a module as views of one vector, so that one collective reduces them all."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        # The order of the parameters is the layout of the vector, and the same on every rank.
        self.parameters = list(parameters)
        first = self.parameters[0]
        self.vector = torch.zeros(sum(p.numel() for p in self.parameters), dtype=first.dtype, device=first.device)
        for parameter, view in zip(self.parameters, self.views(self.vector), strict=True):
            parameter.grad = view

    def views(self, vector: Tensor) -> list[Tensor]:
        """A vector of this layout as one view for each parameter, with its shape and strides."""
        parts = vector.split([parameter.numel() for parameter in self.parameters])
        return [part.as_strided(p.size(), p.stride()) for part, p in zip(parts, self.parameters, strict=True)]


class FlatReplica:
    """Gradients in one vector for each cohort, which are then added over cohorts and ranks.

    `exact` has a cohort for every lane. Lanes are computed side by side, each with the shapes it has on any number of
    ranks; their vectors are gathered and added in lane order. `fast` has one cohort and one all-reduce; it needs this
    replica only for CUDA graphs, as DDP starts its all-reduces inside the backward pass, where none can be recorded.
    """

    def __init__(
        self,
        loss: nn.Module,
        world: World,
        precision: Precision,
        flat: FlatGradient,
        record: Callable[[Callable], Callable],
    ) -> None:
        self._loss, self._world, self._precision = loss, world, precision
        self.flat = flat
        cohorts = len(world.lanes.cohorts)
        self._branches = Branches(cohorts, flat.vector.device)
        # `fast` reduces its only row in place.
        self._rows = flat.vector[None] if world.sync == "fast" else flat.vector.new_zeros((cohorts, len(flat.vector)))
        # Collectives cannot be part of a recorded graph. A single rank has none, so its sum is recorded too.
        self._compute = record(self._gradient if world.alone else self._gradients)

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See Replica."""
        metrics: CohortMetrics = self._compute(cohorts)
        if not self._world.alone:
            self._reduce()
        return metrics

    def _gradient(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        metrics = self._gradients(cohorts)
        self._reduce()
        return metrics

    def _gradients(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        # Strict: a rank that is given other cohorts than it has lanes would leave an old gradient in a row.
        pairs = zip(self._rows, cohorts, strict=True)
        return CohortMetrics.of(self._branches.run([partial(self._local, row, batches) for row, batches in pairs]))

    def _local(self, row: Tensor, micro_batches: Sequence[Batch]) -> Metrics:
        """Leave one cohort's gradient in its row; returns its metrics."""
        return local_gradient(self._loss, self.flat, row, micro_batches, self._precision)

    def _reduce(self) -> None:
        if self._world.sync == "fast":
            self._world.sum(self.flat.vector)
        else:
            self.flat.vector.copy_(self._world.total(self._rows))
        self._precision.unscale(self.flat.parameters)


def local_gradient(
    loss: nn.Module, flat: FlatGradient, vector: Tensor, micro_batches: Sequence[Batch], precision: Precision
) -> Metrics:
    """Put the gradient of one cohort into a vector; returns its metrics."""
    # Frozen weights keep a gradient of zero.
    trained = [(p, view) for p, view in zip(flat.parameters, flat.views(vector), strict=True) if p.requires_grad]
    parameters, views = zip(*trained, strict=True)
    metrics = []
    vector.zero_()
    for batch in micro_batches:
        with precision.autocast():
            share, found = loss(batch)
        # Not `backward`, which adds to each parameter's one `grad`: lanes beside this one would add to it too.
        gradients = torch.autograd.grad(share * precision.scale, parameters, allow_unused=True)
        torch_private.accumulate(views, gradients)
        metrics.append(found)
    return add_metrics(metrics)


def replicate(
    loss: nn.Module,
    world: World,
    precision: Precision,
    record: Callable[[Callable], Callable] | None = None,
    beside: Replica | None = None,
) -> Replica:
    """The replica for this world's sync mode. `record`: the graph recorder, if CUDA graphs are used.

    `beside`: a replica of another loss with the same parameters. A parameter has one `grad`, so both share a vector.
    """
    # CUDA graphs need the flat vector even with one rank; `exact` needs it to gather lanes.
    if world.sync != "exact" and record is None:
        return DDPReplica(loss, world, precision)
    parameters = list(loss.parameters())
    flat = beside.flat if isinstance(beside, FlatReplica) else FlatGradient(parameters)
    assert all(mine is given for mine, given in zip(flat.parameters, parameters, strict=True))
    return FlatReplica(loss, world, precision, flat, record or (lambda function: function))


def add_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Add up several shares of the same metrics."""
    total = dict(parts[0])
    for part in parts[1:]:
        for name, value in part.items():
            total[name] = total[name] + value
    return total
