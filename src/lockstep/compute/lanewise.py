"""Applies a network to the rows of several lanes so that each lane's results have the bits it has alone."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from lockstep.compute.branches import Branches
from lockstep.compute.cohorts import cohorts_of
from lockstep.compute.ops.lane_linear import LinearLayers, by_cohort
from lockstep.compute.row_invariance import same_bits_in_groups

_ROWS_TRIED = 256

Rowwise = Callable[..., Sequence[Tensor]]
"""Tensors (E, ...) -> tensors (E, ...); a row of the results depends on the same row of the arguments alone."""


class Lanewise:
    """A function of rows, computed as if each cohort were alone. E: rows, the same number for every cohort.

    A row's value does not depend on its neighbours, but its last bits may: the number of rows decides which kernel
    computes a matrix product, and so the order of its sums. On a GPU cohorts are computed side by side. On a CPU all
    rows are computed at once, or all but the products of linear layers, if that gives the same bits (see
    `row_invariance`).
    """

    def __init__(
        self, function: Rowwise, network: nn.Module, cohorts: int, device: torch.device, compiled: bool = False
    ) -> None:
        """`network`: the one that the function asks. `cohorts`: the number of equal groups of rows; 1 = all at once.

        `compiled`: by torch.
        """
        self._function, self._cohorts = function, cohorts
        self._products_apart, self._products_alone = (_with_products(function, network, n) for n in (cohorts, 1))
        self._branches = Branches(cohorts, device)
        # Recorded graphs cannot try anything, and cuBLAS chooses by the number of rows almost always. A compiled
        # function cannot be traced: the attempt would keep it from being compiled at all.
        self._tries = cohorts > 1 and device.type == "cpu" and not compiled
        self._together: Rowwise | None = function if cohorts == 1 else None
        self._rounds = 0

    def __call__(self, *rows: Tensor) -> Sequence[Tensor]:
        """The results for all cohorts, (E, ...) each."""
        return self._together(*rows) if self._together is not None else self._apart(rows)

    def begin(self, *rows: Tensor) -> None:
        """Start a round; `rows`: arguments as they will be given, to find out whether all may be computed at once."""
        self._rounds += 1
        # Not only once: a network whose last weights are still zero has the same results in any order. Rarely later on,
        # since the choice of a kernel does not depend on the weights.
        if self._tries and self._rounds.bit_count() == 1:
            self._together = None
            if self._agrees(self._function, self._function, rows):
                self._together = self._function
            elif self._agrees(self._products_alone, self._products_apart, rows):
                self._together = self._products_apart

    def _apart(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        parts = zip(*(cohorts_of(part, self._cohorts) for part in rows), strict=True)
        results = self._branches.run([partial(self._function, *part) for part in parts])
        return tuple(torch.cat(column) for column in zip(*results, strict=True))

    def _agrees(self, alone: Rowwise, together: Rowwise, rows: Sequence[Tensor]) -> bool:
        # A few rows may agree by accident.
        trials = range(max(1, _ROWS_TRIED // len(rows[0])))
        return all(
            same_bits_in_groups(alone, [_disturbed(part, trial) for part in rows], self._cohorts, together)
            for trial in trials
        )


def _with_products(function: Rowwise, network: nn.Module, cohorts: int) -> Rowwise:
    """The function with linear layers that multiply cohort by cohort: products of few rows are the first to differ."""
    layers = LinearLayers(network, partial(by_cohort, cohorts))

    def computed(*rows: Tensor) -> Sequence[Tensor]:
        with layers.replaced():
            return function(*rows)

    return computed


def _disturbed(rows: Tensor, trial: int) -> Tensor:
    """The rows with small differences: a sum of zeros, as at the start of an episode, would round in no order."""
    # A generator of its own: the global one belongs to the user.
    generator = torch.Generator().manual_seed(trial)
    if rows.is_floating_point():
        # Small enough that what a network reads as a number of something keeps its meaning.
        return rows + 1e-3 * torch.randn(rows.shape, generator=generator, dtype=rows.dtype)
    return (
        torch.randint(0, 256, rows.shape, generator=generator, dtype=rows.dtype) if rows.dtype == torch.uint8 else rows
    )
