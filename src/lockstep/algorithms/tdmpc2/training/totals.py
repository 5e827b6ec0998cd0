"""Metrics of the updates of a round, summed on the device, so that no update has to wait for it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lockstep.distributed.gradients import CohortMetrics, Metrics


class Totals:
    """Sums over updates: each cohort's shares, metrics that are equal on all ranks, and counts of updates."""

    def __init__(self, cohorts: int, device: torch.device) -> None:
        self._cohorts, self._device = cohorts, device
        self._shared: tuple[str, ...] = ()
        self._common: tuple[str, ...] = ()
        self._sums: Tensor | None = None
        self._counts = torch.zeros(2, device=device)  # number of updates, and of finite ones

    def add(self, cohorts: CohortMetrics, common: Metrics, finite: Tensor) -> None:
        """Add one update; if it was not finite, its common metrics are left out."""
        # Allocated at the first update, which shows the names, and then kept: a recorded step writes to this address.
        if self._sums is None:
            self._shared, self._common = cohorts.names, tuple(common)
            self._sums = torch.zeros(self._cohorts + 1, max(len(cohorts.names), len(common)), device=self._device)
        self._sums[:-1, : len(self._shared)] += cohorts.values.float()
        # The last row; `where` and not `if`, which would wait for the device.
        numbers = torch.stack([common[name].float() for name in self._common])
        self._sums[-1, : len(self._common)] += torch.where(finite, numbers, 0.0)
        self._counts += torch.stack((torch.ones_like(finite), finite)).float()

    def clear(self) -> None:
        """Start a round."""
        self._counts.zero_()
        if self._sums is not None:
            self._sums.zero_()

    def read(self) -> "RoundMetrics":
        """The metrics of the round; waits for the device."""
        updates, finite = self._counts.tolist()
        if self._sums is None or not updates:
            return RoundMetrics(0, 0, [{} for _ in range(self._cohorts)], {})
        *rows, last = self._sums.tolist()
        shares = [_by_name(self._shared, row, updates) for row in rows]
        return RoundMetrics(int(updates), int(updates - finite), shares, _by_name(self._common, last, finite))


class RoundMetrics:
    """The metrics of a round."""

    def __init__(self, updates: int, skipped: int, shares: list[dict[str, float]], common: Mapping[str, float]) -> None:
        self.updates, self.skipped = updates, skipped
        self.shares = shares
        """Each cohort's share of every metric's mean."""
        self.common = common
        """Means of the metrics that are equal on all ranks."""


def _by_name(names: Sequence[str], row: Sequence[float], count: float) -> dict[str, float]:
    return {name: value / count for name, value in zip(names, row, strict=False)} if count else {}
