"""Collects what the gradient steps of an update report; shared by all learners."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.distributed.gradients import CohortMetrics, Metrics
from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.reporting.metrics import Stat, Stats


class GradientSteps:
    """Metrics, gradient norms and skipped steps of one update.

    Everything stays on the device until the update is over, because reading a value would make the host wait for it.
    """

    def __init__(self, world: World, *optimizers: str) -> None:
        """`optimizers`: their names if there are several; the last one's steps count as the gradient updates."""
        self._world = world
        # By the names of one loss's metrics, (C, N) each.
        self._sums: dict[tuple[str, ...], Tensor] = {}
        self._norms: dict[str, list[Tensor]] = {name: [] for name in optimizers or ("",)}
        self._finite: list[Tensor] = []

    @property
    def count(self) -> int:
        """Gradient updates so far."""
        return len(list(self._norms.values())[-1])

    @property
    def sums(self) -> list[Metrics]:
        """The sum of each metric over the gradient steps, by cohort."""
        cohorts: list[Metrics] = [{} for _ in self._world.lanes.cohorts]
        for names, values in self._sums.items():
            for total, row in zip(cohorts, values, strict=True):
                # Two losses may have a metric of the same name.
                total |= {name: total.get(name, 0.0) + value for name, value in zip(names, row, strict=True)}
        return cohorts

    def add(self, metrics: CohortMetrics) -> None:
        """Add one loss's metrics."""
        if metrics.names in self._sums:
            self._sums[metrics.names] += metrics.values
        else:
            # A copy: a recorded graph overwrites its outputs.
            self._sums[metrics.names] = metrics.values.clone()

    def moved(self, norm: Tensor, finite: Tensor, optimizer: str = "") -> None:
        """Record one optimiser step; results are copied because a captured graph overwrites its outputs."""
        self._norms[optimizer].append(norm.clone())
        self._finite.append(finite.clone())

    def skipped(self) -> int:
        """Optimiser steps that were skipped because a gradient was not finite."""
        return int((~torch.stack(self._finite)).sum()) if self._finite else 0

    def report(self, reports: list[Stats], **common: float) -> None:
        """Add everything to the cohorts' reports; `common`: further numbers that are the same on all ranks."""
        add_shares(reports, self._world, [_mean(total, self.count) for total in self.sums])
        common |= {"skipped_updates": float(self.skipped())}
        if self.count:
            norms = self._norms.items()
            common |= {f"grad_norm_{name}".rstrip("_"): float(torch.stack(each).nanmean()) for name, each in norms}
        reports[0] |= {f"train/{name}": Stat.of([value]) for name, value in common.items()}

    def refuse_non_finite(self, policy: str, update: str, remedy: str) -> None:
        """Raise RunFailed on all ranks, naming the lanes, if a gradient was not finite and the policy is not `skip`.

        policy: the run's `nonfinite`. update: e.g. "update 7". remedy: the flags to lower. Called by every rank.
        """
        bad = self.skipped()
        if not self._world.agree(bad) or policy == "skip":
            return
        mine = [
            lane
            for lanes, total in zip(self._world.lanes.cohorts, self.sums, strict=True)
            if not all(math.isfinite(float(value)) for value in total.values())
            for lane in lanes
        ]
        lanes = sorted(lane for part in self._world.gather_json(mine) for lane in part)
        raise non_finite(bad, update, remedy, lanes)


def non_finite(count: int, update: str, remedy: str, lanes: Sequence[int] = ()) -> RunFailed:
    """The error for a run that stops because gradients are not finite."""
    return RunFailed(
        f"{update}: {count} gradient step(s) were not finite (lanes {list(lanes) or 'unknown'}); the weights were not "
        f"changed; lower {remedy}, or continue with --nonfinite skip"
    )


def add_shares(reports: list[Stats], world: World, shares: Sequence[dict[str, float]]) -> None:
    """Add each cohort's share of the world's mean metrics to its report."""
    for report, lanes, metrics in zip(reports, world.lanes.cohorts, shares, strict=True):
        # A cohort's value is its share of the global mean. It counts with the weight of its lanes; the weights add up
        # to 1, so the reduced mean is the sum of the shares.
        weight = len(lanes) / world.lanes.total
        report |= {f"train/{name}": Stat(v, weight, v / weight, v / weight) for name, v in metrics.items()}


def _mean(total: Metrics, count: int) -> dict[str, float]:
    return {name: float(value) / count for name, value in total.items()}
