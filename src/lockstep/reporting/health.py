"""The health of a run: updates without a finite gradient, and ranks that hold the others up."""

import math
from collections.abc import Sequence
from statistics import median_low

from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.reporting.metrics import Stats

SKIPPED = "train/skipped_updates"
"""What learners report of gradient steps that all ranks left out because they were not finite."""
SLOW = 1.5
PATIENCE = 20


class FiniteWatch:
    """Counts updates in a row that had a gradient which was not finite."""

    def __init__(self, world: World, limit: int, updates: int = 0) -> None:
        """`limit`: 0 = none. `updates`: how many the run has behind it."""
        self._world, self._limit, self._last = world, limit, updates
        self._streak = 0

    def note(self, update: int, reports: Sequence[Stats]) -> str | None:
        """Look at one update's reports; returns what to warn of, raises after too many. Called by every rank."""
        told = [report[SKIPPED] for report in reports if SKIPPED in report]
        if not told:
            # Some learners report every so many updates only.
            return None
        updates, self._last = update - self._last, update
        # A gradient is the world's, so every rank has left out the same steps, and all count alike.
        skipped = round(max(stat.maximum for stat in told))
        before = self._streak
        # Where some of several updates were good, those that were not need not have been in a row.
        self._streak = before + updates if skipped >= updates else 0
        too_many = bool(self._limit) and self._streak >= self._limit
        if not skipped or (before and self._streak and not too_many):
            return None
        where = f"update {update:,}: a gradient was not finite ({self._origin(reports)}); all ranks left that step out"
        if too_many:
            raise RunFailed(
                f"{where}, and so in {self._streak} updates in a row; lower the learning rate, or raise "
                "--nonfinite-limit to go on for longer"
            )
        return where

    def _origin(self, reports: Sequence[Stats]) -> str:
        """Where it came from, as far as the cohorts' own losses tell."""
        bad = []
        for lanes, report in zip(self._world.lanes.cohorts, reports, strict=True):
            tags = [tag for tag, stat in report.items() if tag.startswith("train/") and not math.isfinite(stat.sum)]
            bad += [f"rank {self._world.rank} lanes {lanes.start}..{lanes.stop - 1} {tags[0]}"] if tags else []
        found = [text for part in self._world.gather_json(bad) for text in part]
        return ", ".join(found) or "though every loss was: it overflowed on the way back"


class StragglerWatch:
    """Names ranks that take longer than the others for as much work, update after update."""

    def __init__(self) -> None:
        self._slow: dict[int, int] = {}
        self._named: set[int] = set()

    def note(self, seconds: Sequence[float], updates: int) -> list[str]:
        """Take every rank's own seconds for one share of some updates' work; returns what to warn of, once a rank."""
        usual = median_low(seconds)
        warnings = []
        for rank, spent in enumerate(seconds):
            # The clock says nothing about shares of a millisecond.
            slow = spent > SLOW * usual and spent - usual > 1e-3 * updates
            self._slow[rank] = self._slow.get(rank, 0) + updates if slow else 0
            if self._slow[rank] >= PATIENCE and rank not in self._named:
                self._named.add(rank)
                warnings.append(
                    f"rank {rank} holds the others up: {spent / usual:.1f} times as long as they for its own work, "
                    f"for {self._slow[rank]} updates (its device may be shared, throttled or slower)"
                )
        return warnings
