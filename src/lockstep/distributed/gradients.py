"""The gradients of a rank's lanes, each in a vector of its own. L: lanes, C: cohorts, which in `exact` are the lanes.

Rows do not know of each other, forward and backward: only the gradients of weights are sums over a lane's rows. So all
lanes can be computed as one batch whose weights have a gradient for each lane, which is what `vmap` of `grad` does, in
a few large operations instead of many small ones. Whether a lane then has the bits that it has alone is found out by
trying.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from lockstep.compute import torch_private
from lockstep.compute.branches import Branches
from lockstep.compute.ops.lane_linear import LinearLayers, lane_linear
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


Products = Callable[[], contextlib.AbstractContextManager[None]]
"""The context in which a loss is computed."""
CohortGradients = Callable[[Sequence[Sequence[Batch]]], CohortMetrics]
"""Leaves the gradient of each cohort's micro-batches in its row; returns the cohorts' metrics."""


def cohort_gradients(
    loss: nn.Module, flat: FlatGradient, rows: Tensor, precision: Precision, *, one_pass: bool
) -> CohortGradients:
    """How the gradients of this loss are computed. rows: (C, P), a vector for each cohort.

    `one_pass`: whether lanes may be computed together. Losses may not if they are compiled, since what is traced in a
    trial is never compiled again, or if they leave anything in their batch.
    """
    # A lane alone computes them in the same way, whichever number of lanes its rank has.
    products = lane_products(loss) if one_pass and rows.device.type == "cpu" else contextlib.nullcontext
    apart = Apart(loss, flat, rows, precision, products)
    # On a GPU the number of rows nearly always decides which kernel is chosen, and so the order of sums. With several
    # threads it is the same on a CPU.
    if not one_pass or len(rows) == 1 or rows.device.type != "cpu" or torch.get_num_threads() > 1:
        return apart
    return Tried(apart, Together(loss, flat, rows, precision, products), rows)


def lane_products(loss: nn.Module) -> Products:
    """How the linear layers of a loss multiply on a CPU, so that lanes can be computed together."""
    # Other libraries than MKL need no such care.
    return LinearLayers(loss, lane_linear).replaced if torch.backends.mkl.is_available() else contextlib.nullcontext


class Apart:
    """Each cohort by itself; on a GPU side by side. `products`: how linear layers multiply."""

    def __init__(
        self, loss: nn.Module, flat: FlatGradient, rows: Tensor, precision: Precision, products: Products
    ) -> None:
        self._loss, self._flat, self._rows, self._precision = loss, flat, rows, precision
        self._products = products
        self._branches = Branches(len(rows), rows.device)

    def __call__(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See CohortGradients."""
        # Strict: a rank that is given other cohorts than it has lanes would leave an old gradient in a row.
        pairs = zip(self._rows, cohorts, strict=True)
        with self._products():
            return CohortMetrics.of(self._branches.run([partial(self._local, row, batches) for row, batches in pairs]))

    def _local(self, row: Tensor, micro_batches: Sequence[Batch]) -> Metrics:
        return local_gradient(self._loss, self._flat, row, micro_batches, self._precision)


class Together:
    """All lanes in one pass. Batches are data classes; a field that is not the same for all lanes is a tensor."""

    def __init__(
        self, loss: nn.Module, flat: FlatGradient, rows: Tensor, precision: Precision, products: Products
    ) -> None:
        self._loss, self._rows, self._precision, self._products = loss, rows, precision, products
        pairs = zip(flat.parameters, _by_parameter(flat, rows), strict=True)
        trained, self._frozen = _parted(pairs)
        parameters, self._views = zip(*trained, strict=True)
        self._weights = tuple(parameter.detach() for parameter in parameters)
        # Where each is used: a module may share its weights with another.
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self._uses = [
            (module, name, numbers[id(parameter)])
            for module in loss.modules()
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
            if id(parameter) in numbers
        ]

    def __call__(self, micro_batches: Sequence["LaneBatch"]) -> CohortMetrics:
        """See CohortGradients."""
        metrics: list[Metrics] = []
        for view in self._frozen:
            view.zero_()
        for lanes in micro_batches:
            gradients, found = vmap(partial(self._of_lane, lanes.first))(lanes.parts)
            _put(self._views, gradients, first=not metrics)
            metrics.append(found)
        total = add_metrics(metrics)
        values = torch.stack(tuple(total.values()), dim=1) if total else torch.zeros(len(self._rows), 0)
        return CohortMetrics(tuple(total), values)

    def covers(self) -> bool:
        """Whether all weights have a gradient in some lane: one of zeros is the same in any order."""
        return bool(self._rows.isfinite().all()) and all(bool(view.any()) for view in self._views)

    def _of_lane(self, batch: Batch, parts: dict[str, Tensor]) -> tuple[tuple[Tensor, ...], Metrics]:
        def share(*weights: Tensor) -> tuple[Tensor, Metrics]:
            with self._with(weights), self._precision.autocast():
                value, metrics = self._loss(replace(batch, **parts))
            return value * self._precision.scale, metrics

        return grad(share, argnums=tuple(range(len(self._weights))), has_aux=True)(*self._weights)

    @contextlib.contextmanager
    def _with(self, weights: Sequence[Tensor]) -> Iterator[None]:
        """Let the loss compute with these instead of its parameters, as `functional_call` does in a third of a step."""
        own = [module._parameters[name] for module, name, _ in self._uses]
        try:
            for module, name, number in self._uses:
                module._parameters[name] = weights[number]  # type: ignore[assignment]
            with self._products():
                yield
        finally:
            for (module, name, _), parameter in zip(self._uses, own, strict=True):
                module._parameters[name] = parameter


class Tried:
    """All lanes in one pass if that gives each the bits that it has alone, else each by itself."""

    def __init__(self, apart: Apart, together: Together, rows: Tensor) -> None:
        self._apart, self._together, self._rows = apart, together, rows
        self._trials: dict[Any, _Trial] = {}
        """By the shapes of the batches, which decide on kernels."""

    @property
    def in_one_pass(self) -> bool:
        """Whether lanes of all the shapes that were seen are computed together."""
        return bool(self._trials) and all(trial.passed for trial in self._trials.values())

    def __call__(self, cohorts: Sequence[Sequence[Batch]]) -> CohortMetrics:
        """See CohortGradients."""
        batches = lane_batches(cohorts)
        if batches is None:
            return self._apart(cohorts)
        trial = self._trials.setdefault(tuple(lanes.shapes for lanes in batches), _Trial())
        trial.rounds += 1
        # Not only once, so that an unlucky agreement is found out; rarely later on, since the choice of a kernel does
        # not depend on values.
        if not trial.failed and trial.rounds.bit_count() == 1:
            return self._try(trial, cohorts, batches)
        if trial.passed:
            try:
                return self._together(batches)
            except _NOT_IN_ONE_PASS:
                # If it is the data's fault, a lane by itself says so in its own words.
                trial.failed = True
        return self._apart(cohorts)

    def _try(
        self, trial: "_Trial", cohorts: Sequence[Sequence[Batch]], batches: Sequence["LaneBatch"]
    ) -> CohortMetrics:
        expected, whole = in_whole_vectors(partial(self._apart, cohorts))
        alone = self._rows.clone()
        covered = self._together.covers()
        trial.failed = not whole or not self._gives(expected, alone, batches)
        trial.proven = trial.proven or (covered and not trial.failed)
        self._rows.copy_(alone)
        return expected

    def _gives(self, expected: CohortMetrics, alone: Tensor, batches: Sequence["LaneBatch"]) -> bool:
        try:
            with warnings.catch_warnings():
                # Where `vmap` has no rule it computes row by row, and says that it is slow.
                warnings.filterwarnings("error", message=".*batching rule.*")
                found, whole = in_whole_vectors(partial(self._together, batches))
        except (*_NOT_IN_ONE_PASS, UserWarning):
            return False
        same = found.names == expected.names and same_bits(found.values, expected.values)
        return whole and same and same_bits(self._rows, alone)


# Some operation has no rule for lanes, reads a value, or writes to what all lanes share.
_NOT_IN_ONE_PASS = (RuntimeError, TypeError, ValueError, NotImplementedError)


@dataclass
class _Trial:
    """What is known about batches of one shape."""

    rounds: int = 0
    proven: bool = False
    """Whether every weight's gradient had the same bits, in some trial."""
    failed: bool = False

    @property
    def passed(self) -> bool:
        return self.proven and not self.failed


@dataclass(frozen=True)
class LaneBatch:
    """One micro-batch of all lanes."""

    first: Batch
    """That of the first lane."""
    parts: dict[str, Tensor]
    """The fields that are not the same for all lanes: tensors (L, ...)."""

    @property
    def shapes(self) -> tuple[Any, ...]:
        """What kernels are chosen by."""
        return tuple((name, part.shape, part.dtype) for name, part in self.parts.items())


def lane_batches(cohorts: Sequence[Sequence[Batch]]) -> list[LaneBatch] | None:
    """The micro-batches of all lanes together; None if they are not data classes that differ in tensors alone."""
    if len({len(micro_batches) for micro_batches in cohorts}) > 1:
        return None
    found = []
    for batches in zip(*cohorts, strict=True):
        first = batches[0]
        if not is_dataclass(first):
            return None
        columns = {field.name: [getattr(batch, field.name) for batch in batches] for field in fields(first)}
        apart = {name: column for name, column in columns.items() if any(part is not column[0] for part in column[1:])}
        parts = [part for column in apart.values() for part in column]
        if not parts or not all(isinstance(part, Tensor) for part in parts):
            return None
        if any(len({part.shape for part in column}) > 1 for column in apart.values()):
            return None
        found.append(LaneBatch(first, {name: torch.stack(column) for name, column in apart.items()}))
    return found


def local_gradient(
    loss: nn.Module, flat: FlatGradient, vector: Tensor, micro_batches: Sequence[Batch], precision: Precision
) -> Metrics:
    """Put the gradient of one cohort into a vector; returns its metrics."""
    trained, frozen = _parted(zip(flat.parameters, flat.views(vector), strict=True))
    parameters, views = zip(*trained, strict=True)
    for view in frozen:
        view.zero_()
    metrics: list[Metrics] = []
    for batch in micro_batches:
        with precision.autocast():
            share, found = loss(batch)
        # Not `backward`, which adds to each parameter's one `grad`: lanes beside this one would add to it too.
        gradients = torch.autograd.grad(share * precision.scale, parameters, allow_unused=True)
        _put(views, gradients, first=not metrics)
        metrics.append(found)
    return add_metrics(metrics)


def _parted(pairs: Iterable[tuple[nn.Parameter, Tensor]]) -> tuple[list[tuple[nn.Parameter, Tensor]], list[Tensor]]:
    """The parameters that are trained with the places of their gradients; the places of the others, which are zero."""
    given = list(pairs)
    return [pair for pair in given if pair[0].requires_grad], [view for p, view in given if not p.requires_grad]


def _put(views: Sequence[Tensor], gradients: Sequence[Tensor | None], *, first: bool) -> None:
    """Add the gradients of a micro-batch to those before it. The first are copied: clearing and adding take longer."""
    (torch_private.store if first else torch_private.accumulate)(views, gradients)


def add_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Add up several shares of the same metrics."""
    total = dict(parts[0])
    for part in parts[1:]:
        for name, value in part.items():
            total[name] = total[name] + value
    return total


def _by_parameter(flat: FlatGradient, rows: Tensor) -> list[Tensor]:
    """Rows (C, P) as a view (C, ...) for each parameter, with its shape and strides."""
    parts = rows.split([parameter.numel() for parameter in flat.parameters], dim=1)
    return [
        part.as_strided((len(rows), *parameter.size()), (rows.stride(0), *parameter.stride()))
        for part, parameter in zip(parts, flat.parameters, strict=True)
    ]
