"""What a run says about itself: reports of all ranks, gathered and written once."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from lockstep.distributed.world import World
from lockstep.errors import LockstepError, error_of
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.health import StragglerWatch
from lockstep.reporting.metrics import MetricsLog, Stats, merge, reduce
from lockstep.reporting.monitor import Telemetry
from lockstep.storage.disk import write_atomically


class Journal:
    """Collects reports between log points; at a log point all ranks' reports become one line of metrics."""

    def __init__(
        self,
        directory: Path,
        world: World,
        log: MetricsLog | None,
        telemetry: Telemetry | None,
        still_ours: Callable[[], None] = lambda: None,
    ) -> None:
        """`still_ours` is asked on rank 0 at every log point, and raises where the directory is no longer the run's."""
        self._still_ours = still_ours
        self._directory, self._world, self._log, self._telemetry = directory, world, log, telemetry
        self.warnings: list[str] = []
        """What the user should hear about; taken away by whoever says it."""
        self._reports: list[Stats] = []
        self._timings: dict[str, float] = {}
        self._evaluation: dict[str, float] = {}
        self._updates = 0
        self._stragglers = StragglerWatch()
        self._last_step: int | None = None
        self._last_time = time.monotonic()

    def start(self, step: int) -> None:
        """Steps and seconds count from here."""
        self._last_step, self._last_time = step, time.monotonic()

    def note(self, reports: list[Stats], timings: dict[str, float]) -> None:
        """Keep one update's reports, one per cohort."""
        merged = zip(self._reports or [{} for _ in reports], reports, strict=True)
        self._reports = [merge([old, new]) for old, new in merged]
        self._updates += 1
        for part, seconds in timings.items():
            self._timings[part] = self._timings.get(part, 0.0) + seconds

    def note_evaluation(self, evaluation: Evaluation) -> None:
        """Keep an evaluation for the next log point, and in full in evaluation.json."""
        self._evaluation = {f"eval/{name}": value for name, value in evaluation.numbers().items()}
        if self._world.leads:
            path = self._directory / "evaluation.json"
            try:
                write_atomically(path, json.dumps(evaluation.summary(), indent=1).encode())
            except OSError as error:
                self.warnings.append(f"{path}: not written ({error.strerror}); training goes on")

    def write(self, step: int) -> dict[str, float]:
        """One log point over the world. Called by every rank; every rank gets the metrics."""
        world = self._world
        elapsed = max(time.monotonic() - self._last_time, 1e-9)
        done = step - (self._last_step or 0)
        reduced = reduce(self._reports, world)
        metrics = {tag: stat.mean for tag, stat in reduced.items() if stat.count}
        if "rollout/return_mean" in reduced:
            metrics["rollout/episodes"] = reduced["rollout/return_mean"].count
        busy = sum(self._timings.values())
        # Ranks wait for each other while they learn; the rest is a rank's own doing.
        own = busy - self._timings.get("learning", 0.0)
        share = len(world.lanes.mine) / world.lanes.total
        mine = {"busy": busy, "own": own, "parts": self._timings, "share": share, "lost": self._loss()}
        everyone = world.gather_json(mine)
        if lost := everyone[0]["lost"]:
            raise error_of(*lost)
        metrics["time/global_fps"] = done / elapsed
        for rank, other in enumerate(everyone):
            metrics[f"time/fps_rank{rank}"] = done * other["share"] / max(other["busy"], 1e-9)
            metrics[f"time/own_seconds_rank{rank}"] = other["own"] / max(self._updates, 1)
        own_seconds = [other["own"] / other["share"] / world.lanes.total for other in everyone]
        self.warnings += self._stragglers.note(own_seconds, self._updates)
        for part in sorted({part for other in everyone for part in other["parts"]}):
            spent = sum(other["parts"].get(part, 0.0) for other in everyone)
            metrics[f"time/split_{part}"] = spent / (elapsed * world.size)
        metrics |= self._evaluation
        if self._telemetry is not None:
            metrics |= self._telemetry.latest()
        if self._log is not None:
            self._log.write(step, metrics)
        self._reports, self._timings, self._evaluation, self._updates = [], {}, {}, 0
        self.start(step)
        return metrics

    def _loss(self) -> tuple[str, int] | None:
        """Why this run must not write any more, on rank 0; it travels with the reports, so that all ranks end alike."""
        if self._world.leads:
            try:
                self._still_ours()
            except LockstepError as error:
                return str(error), error.exit_code
        return None

    def sync(self) -> None:
        """Wait until the disk has every log point so far, which a checkpoint is about to be past. Rank 0 only."""
        if self._log is not None:
            self._log.sync()

    def close(self) -> None:
        """Flush and close what this rank writes."""
        if self._telemetry is not None:
            self._telemetry.stop()
        if self._log is not None:
            self._log.close()
