"""Replicas: how the local gradients of a loss module become the world's gradient, identical on every rank.

A loss module's forward takes a batch and returns its loss and detached metrics. Both are *shares*: sums over the
batch's samples divided by the sample count of the whole world. So adding the shares of all cohorts gives the global
mean, however uneven the cohorts are.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.compute.precision import Precision
from lockstep.distributed.gradients import Batch, CohortMetrics, FlatGradient, Metrics, add_metrics, cohort_gradients
from lockstep.distributed.world import World


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


class FlatReplica:
    """Gradients in one vector for each cohort, which are then added over cohorts and ranks.

    `exact` has a cohort for every lane. A lane's vector has the same bits on any number of ranks, however many lanes
    are computed at once; all vectors are gathered and added in lane order. `fast` has one cohort and one all-reduce. It
    needs this replica only for CUDA graphs: DDP starts its all-reduces inside the backward pass, where none can be
    recorded.
    """

    def __init__(
        self,
        loss: nn.Module,
        world: World,
        precision: Precision,
        flat: FlatGradient,
        record: Callable[[Callable], Callable],
        *,
        one_pass: bool,
    ) -> None:
        self._world, self._precision, self.flat = world, precision, flat
        cohorts = len(world.lanes.cohorts)
        # `fast` reduces its only row in place.
        self._rows = flat.vector[None] if world.sync == "fast" else flat.vector.new_zeros((cohorts, len(flat.vector)))
        self._gradients = cohort_gradients(loss, flat, self._rows, precision, one_pass=one_pass)
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

    def _reduce(self) -> None:
        if self._world.sync == "fast":
            self._world.sum(self.flat.vector)
        else:
            self.flat.vector.copy_(self._world.total(self._rows))
        self._precision.unscale(self.flat.parameters)


def replicate(
    loss: nn.Module,
    world: World,
    precision: Precision,
    record: Callable[[Callable], Callable] | None = None,
    beside: Replica | None = None,
    *,
    one_pass: bool = False,
) -> Replica:
    """The replica for this world's sync mode. `record`: the graph recorder, if CUDA graphs are used.

    `one_pass`: whether lanes may be computed together in `exact`; see `cohort_gradients`.
    `beside`: a replica of another loss with the same parameters. A parameter has one `grad`, so both share a vector.
    """
    # CUDA graphs need the flat vector even with one rank; `exact` needs it to gather lanes.
    if world.sync != "exact" and record is None:
        return DDPReplica(loss, world, precision)
    parameters = list(loss.parameters())
    flat = beside.flat if isinstance(beside, FlatReplica) else FlatGradient(parameters)
    assert all(mine is given for mine, given in zip(flat.parameters, parameters, strict=True))
    return FlatReplica(loss, world, precision, flat, record or (lambda function: function), one_pass=one_pass)
