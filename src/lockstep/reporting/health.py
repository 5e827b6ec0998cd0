"""The health of a run: updates with non-finite gradients, and ranks that slow the others down."""

import math
from collections.abc import Sequence
from statistics import median_low

from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.reporting.metrics import Stats

SKIPPED = "train/skipped_updates"
"""The metric in which learners report gradient steps that all ranks skipped because they were not finite."""
SLOW = 1.5
"""A rank is slow if it takes this many times as long as the usual one."""
PATIENCE = 20
"""Updates in a row after which a slow rank is reported: single slow updates (a cache, another program) are normal."""


class FiniteWatch:
    """Counts consecutive updates with a non-finite gradient."""

    def __init__(self, world: World, limit: int, updates: int = 0) -> None:
        """`limit`: consecutive updates that end the run, 0: no limit. `updates`: how many the run has done."""
        self._world, self._limit, self._last = world, limit, updates
        self._streak = 0

    def note(self, update: int, reports: Sequence[Stats]) -> str | None:
        """Check one update's reports; returns a warning or None, raises after too many. Called by every rank."""
        counts = [report[SKIPPED] for report in reports if SKIPPED in report]
        if not counts:
            # Some learners report only every few updates.
            return None
        updates, self._last = update - self._last, update
        # Gradients are reduced over the world, so every rank skips the same steps and all ranks count alike: the
        # decisions below need no exchange.
        skipped = round(max(stat.maximum for stat in counts))
        before = self._streak
        # If only some of several updates were skipped, they need not have been consecutive.
        self._streak = before + updates if skipped >= updates else 0
        too_many = bool(self._limit) and self._streak >= self._limit
        # One warning for each streak, and the error at its limit.
        if not skipped or (before and self._streak and not too_many):
            return None
        where = f"update {update:,}: a gradient was not finite ({self._origin(reports)}); all ranks skipped that step"
        if too_many:
            raise RunFailed(
                f"{where}, {self._streak} updates in a row by now; lower the learning rate, or raise "
                "--nonfinite-limit to go on for longer"
            )
        return where

    def _origin(self, reports: Sequence[Stats]) -> str:
        """Which rank, lanes and loss it came from, if a cohort's own losses show it. Called by every rank."""
        bad = []
        for lanes, report in zip(self._world.lanes.cohorts, reports, strict=True):
            tags = [tag for tag, stat in report.items() if tag.startswith("train/") and not math.isfinite(stat.sum)]
            bad += [f"rank {self._world.rank} lanes {lanes.start}..{lanes.stop - 1} {tags[0]}"] if tags else []
        found = [text for part in self._world.gather_json(bad) for text in part]
        return ", ".join(found) or "although every loss was: it overflowed in the backward pass"


class StragglerWatch:
    """Finds ranks that take longer than the others for the same amount of work, update after update."""

    def __init__(self) -> None:
        self._slow: dict[int, int] = {}
        self._named: set[int] = set()

    def note(self, seconds: Sequence[float], updates: int) -> list[str]:
        """Take each rank's own seconds per lane for the last `updates`; returns warnings, one for each rank at most."""
        # The lower median: of two ranks the faster one is the measure.
        usual = median_low(seconds)
        warnings = []
        for rank, spent in enumerate(seconds):
            # Differences below a millisecond per update are noise.
            slow = spent > SLOW * usual and spent - usual > 1e-3 * updates
            self._slow[rank] = self._slow.get(rank, 0) + updates if slow else 0
            if self._slow[rank] >= PATIENCE and rank not in self._named:
                self._named.add(rank)
                warnings.append(
                    f"rank {rank} slows the others down: its own work takes {spent / usual:.1f} times as long as "
                    f"theirs, for {self._slow[rank]} updates (its device may be shared, throttled or slower)"
                )
        return warnings
