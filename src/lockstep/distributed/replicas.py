"""Replicas: how the gradient of one loss module becomes the world's gradient, the same on every rank.

A loss module's forward takes a batch and returns its loss and detached metrics. Both are *shares*: sums over the
batch's samples divided by the count over the whole world, so that adding the shares of all cohorts gives the global
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
        """Leave the world's gradient in every parameter; returns each cohort's metrics. Called by every rank.

        cohorts: one entry per cohort of this rank, each a list of micro-batches whose gradients are accumulated.
        """


class DDPReplica:
    """`fast`: DistributedDataParallel around the loss module, so the forward it watches is the one that trains."""

    def __init__(self, loss: nn.Module, world: World, precision: Precision) -> None:
        self._world = world
        self._precision = precision
        self._parameters = list(loss.parameters())
        self._module = loss
        if world.size > 1:
            self._module = world.data_parallel(loss)

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> list[Metrics]:
        """See Replica. DDP averages over ranks, so each share is multiplied by their number."""
        (micro_batches,) = cohorts
        for parameter in self._parameters:
            parameter.grad = None
        metrics: list[Metrics] = []
        for number, batch in enumerate(micro_batches, start=1):
            with self._unsynchronised(number < len(micro_batches)):
                with self._precision.autocast():
                    loss, found = self._module(batch)
                (loss * (self._precision.scale * self._world.size)).backward()
            metrics.append(found)
        self._precision.unscale(self._parameters)
        return [add_metrics(metrics)]

    def _unsynchronised(self, wanted: bool) -> contextlib.AbstractContextManager[None]:
        if wanted and isinstance(self._module, DistributedDataParallel):
            return self._module.no_sync()
        return contextlib.nullcontext()


class FlatGradient:
    """All gradients of a module as views of one vector, so that one exchange moves them all."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        first = self.parameters[0]
        self.vector = torch.zeros(sum(p.numel() for p in self.parameters), dtype=first.dtype, device=first.device)
        offset = 0
        for parameter in self.parameters:
            view = self.vector[offset : offset + parameter.numel()].view_as(parameter)
            # The view keeps the parameter's memory order, or autograd would replace it by a tensor of its own.
            parameter.grad = view.as_strided(parameter.size(), parameter.stride())
            offset += parameter.numel()


class LaneReplica:
    """`exact`: forward and backward lane by lane, gradients gathered and added in lane order."""

    def __init__(self, loss: nn.Module, world: World, precision: Precision, flat: FlatGradient) -> None:
        self._loss = loss
        self._world = world
        self._precision = precision
        self.flat = flat

    def backward(self, cohorts: Sequence[Sequence[Batch]]) -> list[Metrics]:
        """See Replica."""
        gradients, metrics = [], []
        for micro_batches in cohorts:
            gradient, found = _local_gradient(self._loss, self.flat, micro_batches, self._precision)
            gradients.append(gradient.clone())
            metrics.append(found)
        self.flat.vector.copy_(self._world.total(gradients))
        self._precision.unscale(self.flat.parameters)
        return metrics


class FlatReplica:
    """`fast` with captured kernels: the local gradient is one recorded graph, then one exchange of one vector.

    DDP's exchanges sit inside the backward pass, where a recorded graph cannot hold them safely.
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
        metrics = self._local(micro_batches)
        self._world.sum(self.flat.vector)
        self._precision.unscale(self.flat.parameters)
        return [metrics]


def _local_gradient(
    loss: nn.Module, flat: FlatGradient, micro_batches: Sequence[Batch], precision: Precision
) -> tuple[Tensor, Metrics]:
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
    """The replica for this world's sync mode; `record` (a graph recorder) is given where kernels are to be captured.

    `beside`: a replica of another loss over the same parameters. A parameter has one gradient, so both share a vector.
    """
    if world.sync != "exact" and record is None:
        return DDPReplica(loss, world, precision)
    parameters = list(loss.parameters())
    flat = beside.flat if isinstance(beside, LaneReplica | FlatReplica) else FlatGradient(parameters)
    assert all(one is other for one, other in zip(flat.parameters, parameters, strict=True))
    if world.sync == "exact":
        return LaneReplica(loss, world, precision, flat)
    assert record is not None
    return FlatReplica(loss, world, precision, flat, record)


def add_metrics(parts: Sequence[Metrics]) -> Metrics:
    """The sum of several shares of the same metrics."""
    total = dict(parts[0])
    for part in parts[1:]:
        for name, value in part.items():
            total[name] = total[name] + value
    return total
