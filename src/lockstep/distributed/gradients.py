"""The gradients of a rank's lanes, each in a vector of its own. L: lanes, C: cohorts, which in `exact` are the lanes.

Rows do not know of each other, forward and backward: only the gradients of weights are sums over a lane's rows. So all
lanes can be computed as one batch whose weights have a gradient for each lane, which is what `vmap` of `grad` does, in
a few large operations instead of many small ones. Whether a lane then has the bits that it has alone is found out by
trying.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from lockstep.compute import torch_private
from lockstep.compute.branches import Branches
from lockstep.compute.precision import Precision
from lockstep.compute.row_invariance import in_whole_vectors, same_bits

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


CohortGradients = Callable[[Sequence[Sequence[Batch]]], CohortMetrics]
"""Leaves the gradient of each cohort's micro-batches in its row; returns the cohorts' metrics."""


def cohort_gradients(loss: nn.Module, flat: FlatGradient, rows: Tensor, precision: Precision) -> CohortGradients:
    """How the gradients of this loss are computed. rows: (C, P), a vector for each cohort."""
    apart = Apart(loss, flat, rows, precision)
    # On a GPU the number of rows nearly always decides which kernel is chosen, and so the order of sums. With several
    # threads it is the same on a CPU. What is compiled cannot be traced.
    lanes = len(rows) > 1 and rows.device.type == "cpu" and torch.get_num_threads() == 1
    if not lanes or torch_private.is_compiled(loss):
        return apart
    return Tried(apart, Together(loss, flat, rows, precision), rows)


class Apart:
    """Each cohort by itself; on a GPU side by side."""

    def __init__(self, loss: nn.Module, flat: FlatGradient, rows: Tensor, precision: Precision) -> None:
        self._loss, self._flat, self._rows, self._precision = loss, flat, rows, precision
        self._branches = Branches(len(rows), rows.device)

    def __call__(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See CohortGradients."""
        # Strict: a rank that is given other cohorts than it has lanes would leave an old gradient in a row.
        pairs = zip(self._rows, cohorts, strict=True)
        return CohortMetrics.of(self._branches.run([partial(self._local, row, batches) for row, batches in pairs]))

    def _local(self, row: Tensor, micro_batches: Sequence[Batch]) -> Metrics:
        return local_gradient(self._loss, self._flat, row, micro_batches, self._precision)


class Together:
    """All lanes in one pass. Batches are data classes; a field that is not the same for all lanes is a tensor."""

    def __init__(self, loss: nn.Module, flat: FlatGradient, rows: Tensor, precision: Precision) -> None:
        self._loss, self._rows, self._precision = loss, rows, precision
        trained = [
            (name, parameter.detach(), view)
            for (name, parameter), view in zip(loss.named_parameters(), _by_parameter(flat, rows), strict=True)
            if parameter.requires_grad
        ]
        names, parameters, self._views = zip(*trained, strict=True)
        self._parameters = dict(zip(names, parameters, strict=True))

    def __call__(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See CohortGradients."""
        metrics = []
        self._rows.zero_()
        for batches in zip(*cohorts, strict=True):
            gradients, found = vmap(partial(self._of_lane, batches[0]))(_differing(batches))
            torch_private.accumulate(self._views, [gradients[name] for name in self._parameters])
            metrics.append(found)
        total = add_metrics(metrics)
        return CohortMetrics(tuple(total), torch.stack(tuple(total.values()), dim=1))

    def _of_lane(self, batch: Batch, parts: dict[str, Tensor]) -> tuple[dict[str, Tensor], Metrics]:
        def share(parameters: dict[str, Tensor]) -> tuple[Tensor, Metrics]:
            with self._precision.autocast():
                value, metrics = functional_call(self._loss, parameters, (replace(batch, **parts),))
            return value * self._precision.scale, metrics

        return grad(share, has_aux=True)(self._parameters)


class Tried:
    """All lanes in one pass if that gives each the bits that it has alone, else each by itself."""

    def __init__(self, apart: Apart, together: Together, rows: Tensor) -> None:
        self._apart, self._together, self._rows = apart, together, rows
        self.in_one_pass = True
        """Whether lanes are computed together, as far as has been tried."""
        self._rounds = 0

    def __call__(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See CohortGradients."""
        self._rounds += 1
        # Not only once: gradients that are still zero are the same in any order. Rarely later on, since the choice of a
        # kernel does not depend on values.
        if self.in_one_pass and self._rounds.bit_count() == 1:
            return self._try(cohorts)
        if self.in_one_pass:
            try:
                return self._together(cohorts)
            except RuntimeError:
                # If it is the data's fault, a lane by itself says so in its own words.
                self.in_one_pass = False
        return self._apart(cohorts)

    def _try(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        expected, whole = in_whole_vectors(partial(self._apart, cohorts))
        gradients = self._rows.clone()
        self.in_one_pass = whole and self._gives(expected, gradients, cohorts)
        self._rows.copy_(gradients)
        return expected

    def _gives(self, expected: CohortMetrics, gradients: Tensor, cohorts: Sequence[Sequence[Batch]]) -> bool:
        if not is_dataclass(cohorts[0][0]):
            return False
        try:
            found, whole = in_whole_vectors(partial(self._together, cohorts))
        except (RuntimeError, TypeError, NotImplementedError):
            # Some operation has no rule for lanes, or reads values.
            return False
        same = found.names == expected.names and same_bits(found.values, expected.values)
        return whole and same and same_bits(self._rows, gradients)


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


def add_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Add up several shares of the same metrics."""
    total = dict(parts[0])
    for part in parts[1:]:
        for name, value in part.items():
            total[name] = total[name] + value
    return total


def _differing(batches: Sequence[Batch]) -> dict[str, Tensor]:
    """The fields that are not the same in all lanes' batches: tensors (L, ...) by name."""
    first, *others = batches
    names = [field.name for field in fields(first)]
    apart = [name for name in names if any(getattr(other, name) is not getattr(first, name) for other in others)]
    return {name: torch.stack([getattr(batch, name) for batch in batches]) for name in apart}


def _by_parameter(flat: FlatGradient, rows: Tensor) -> list[Tensor]:
    """Rows (C, P) as a view (C, ...) for each parameter, with its shape and strides."""
    parts = rows.split([parameter.numel() for parameter in flat.parameters], dim=1)
    return [
        part.as_strided((len(rows), *parameter.size()), (rows.stride(0), *parameter.stride()))
        for part, parameter in zip(parts, flat.parameters, strict=True)
    ]
