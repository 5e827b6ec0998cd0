"""Replicas: how the local gradients of a loss module become the world's gradient, identical on every rank.

A loss module's forward takes a batch and returns its loss and detached metrics. Both are *shares*: sums over the
batch's samples divided by the sample count of the whole world. So adding the shares of all cohorts gives the global
mean, however uneven the cohorts are.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.compute.precision import Precision
from lockstep.distributed.world import World

Batch = Any
Metrics = dict[str, Tensor]


class Replica(Protocol):
    """One rank's copy of a loss module."""

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> list[Metrics]:
        """Put the world's gradient into every parameter's `grad`; returns each cohort's metrics. Called by every rank.

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

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> list[Metrics]:
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
        return [add_metrics(metrics)]

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
        offset = 0
        for parameter in self.parameters:
            view = self.vector[offset : offset + parameter.numel()].view_as(parameter)
            # The view must have the parameter's strides, or autograd would replace it by a new tensor.
            parameter.grad = view.as_strided(parameter.size(), parameter.stride())
            offset += parameter.numel()


class LaneReplica:
    """`exact`: forward and backward lane by lane; gradients are gathered and added in lane order.

    With CUDA graphs the gradient of each lane is a recorded graph of its own, which reads the lane's batch.
    """

    def __init__(
        self,
        loss: nn.Module,
        world: World,
        precision: Precision,
        flat: FlatGradient,
        record: Callable[[Callable], Callable],
    ) -> None:
        self._world = world
        self._precision = precision
        self.flat = flat

        def local_gradient(batches: Sequence[Batch]) -> tuple[Tensor, Metrics]:
            return _local_gradient(loss, flat, batches, precision)

        self._local = [record(local_gradient) for _ in world.lanes.cohorts]

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> list[Metrics]:
        """See Replica."""
        gradients, metrics = [], []
        for local_gradient, micro_batches in zip(self._local, cohorts, strict=True):
            gradient, found = local_gradient(micro_batches)
            # The next lane reuses the vector.
            gradients.append(gradient.clone())
            metrics.append(found)
        self.flat.vector.copy_(self._world.total(gradients))
        self._precision.unscale(self.flat.parameters)
        return metrics


class FlatReplica:
    """`fast` with CUDA graphs: the local gradient is one recorded graph, followed by one all-reduce of one vector.

    DDP starts its all-reduces inside the backward pass, which cannot be captured in a graph safely.
    """

    def __init__(
        self,
        loss: nn.Module,
        world: World,
        precision: Precision,
        flat: FlatGradient,
        record: Callable[[Callable], Callable],
    ) -> None:
        self._world = world
        self._precision = precision
        self.flat = flat
        self._local = record(lambda batches: _local_gradient(loss, flat, batches, precision)[1])

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> list[Metrics]:
        """See Replica."""
        (micro_batches,) = cohorts
        # The graph leaves the gradient in the vector it was recorded with, and returns the metrics.
        metrics = self._local(micro_batches)
        self._world.sum(self.flat.vector)
        self._precision.unscale(self.flat.parameters)
        return [metrics]


def _local_gradient(
    loss: nn.Module, flat: FlatGradient, micro_batches: Sequence[Batch], precision: Precision
) -> tuple[Tensor, Metrics]:
    # Zeroed in place: the gradients must stay views of this vector.
    flat.vector.zero_()
    metrics = []
    for batch in micro_batches:
        with precision.autocast():
            share, found = loss(batch)
        (share * precision.scale).backward()
        metrics.append(found)
    return flat.vector, add_metrics(metrics)


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
    flat = beside.flat if isinstance(beside, LaneReplica | FlatReplica) else FlatGradient(parameters)
    assert all(mine is given for mine, given in zip(flat.parameters, parameters, strict=True))
    if world.sync == "exact":
        return LaneReplica(loss, world, precision, flat, record or (lambda function: function))
    assert record is not None
    return FlatReplica(loss, world, precision, flat, record)


def add_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Add up several shares of the same metrics."""
    total = dict(parts[0])
    for part in parts[1:]:
        for name, value in part.items():
            total[name] = total[name] + value
    return total
