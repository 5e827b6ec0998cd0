"""The journal of a run: the reports of all ranks, gathered over the world and written once."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lockstep.distributed.world import World
from lockstep.errors import LockstepError, from_json, to_json
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.health import StragglerWatch
from lockstep.reporting.log_sinks import LoggedRun
from lockstep.reporting.metrics import MetricsLog, Stats, as_json, from_numbers, merge, reduce
from lockstep.reporting.monitor import ProcessUse, Telemetry
from lockstep.storage.disk import write_atomically

_MOST_DETAILED = 16
"""Ranks up to which each one's time split and memory are logged; of more there would be hundreds of tags."""


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
        """`still_ours` is called on rank 0 at every log point; it raises if the directory is no longer this run's."""
        self._still_ours = still_ours
        self._directory, self._world, self._log, self._telemetry = directory, world, log, telemetry
        self.warnings: list[str] = []
        """Messages for the user; whoever prints them removes them."""
        self._reports: list[Stats] = []
        # Over all ranks, from before a stop.
        self._earlier: Stats = {}
        self._timings: dict[str, float] = {}
        self._evaluation: dict[str, float] = {}
        self._updates = 0
        self._use = ProcessUse(world.device)
        self._stragglers = StragglerWatch()
        self._last_step: int | None = None
        self._last_time = time.monotonic()

    @classmethod
    def open(
        cls,
        run: LoggedRun,
        world: World,
        loggers: Iterable[str],
        still_ours: Callable[[], None],
    ) -> "Journal":
        """The journal of a run; rank 0 keeps its log, hands it to `loggers` by their names and watches the machine."""
        if not world.leads:
            return cls(run.directory, world, None, None, still_ours)
        return cls(run.directory, world, MetricsLog(run, loggers), Telemetry(), still_ours)

    def past(self) -> Iterable[Mapping[str, float]]:
        """The log points so far; on rank 0 alone."""
        return self._log.rows() if self._log is not None else ()

    def start(self, step: int) -> None:
        """Start counting steps and seconds for the speed metrics."""
        self._last_step, self._last_time = step, time.monotonic()

    def note(self, reports: list[Stats], timings: dict[str, float]) -> None:
        """Add one update's reports, one per cohort, and its seconds by part."""
        # Merged per cohort and not over them: `write` adds cohorts in lane order, so that bits do not depend on ranks.
        merged = zip(self._reports or [{} for _ in reports], reports, strict=True)
        self._reports = [merge([old, new]) for old, new in merged]
        self._updates += 1
        self.note_timings(timings)

    def note_timings(self, timings: dict[str, float]) -> None:
        """Add this rank's seconds by part, of an update or of an evaluation after it."""
        for part, seconds in timings.items():
            self._timings[part] = self._timings.get(part, 0.0) + seconds

    def unwritten(self) -> dict[str, list[float]]:
        """The reports since the last log point, as JSON for a checkpoint. Called by every rank; the same on all."""
        return as_json(self._reduced())

    def take_up(self, unwritten: dict[str, list[float]]) -> None:
        """Continue a log point from what `unwritten` returned before a stop."""
        self._earlier = from_numbers(unwritten)

    def _reduced(self) -> Stats:
        return merge([self._earlier, reduce(self._reports, self._world)])

    def note_evaluation(self, evaluation: Evaluation) -> None:
        """Keep an evaluation's means for the next log point, and write all of it to evaluation.json."""
        self._evaluation = {f"eval/{name}": value for name, value in evaluation.numbers().items()}
        # Every rank has the same evaluation; rank 0 writes it.
        if self._world.leads:
            path = self._directory / "evaluation.json"
            try:
                write_atomically(path, json.dumps(evaluation.summary(), indent=1).encode())
            except OSError as error:
                self.warnings.append(f"{path}: not written ({error.strerror}); training continues")

    def write(self, step: int, fingerprint: Callable[[], str | None] = lambda: None) -> dict[str, float]:
        """Write one log point over the world. Called by every rank; every rank gets the metrics.

        `fingerprint`: hashes the weights for the log, or says that it would take too long. Called on rank 0 alone.
        """
        world = self._world
        elapsed = max(time.monotonic() - self._last_time, 1e-9)  # two log points may share a tick of the clock
        done = step - (self._last_step or 0)
        reduced = self._reduced()
        # Without observations (no episode ended) a tag is left out.
        metrics = {tag: stat.mean for tag, stat in reduced.items() if stat.count}
        if "rollout/return_mean" in reduced:
            metrics["rollout/episodes"] = reduced["rollout/return_mean"].count
        busy = sum(self._timings.values())
        # While learning, ranks wait for each other in collectives. The rest is a rank's own work.
        own = busy - self._timings.get("learning", 0.0)
        # Of the lanes, and so of the environment steps.
        share = len(world.lanes.mine) / world.lanes.total
        mine = {"busy": busy, "own": own, "parts": self._timings, "share": share, "lost": self._loss()}
        mine["use"] = self._use.sample()
        everyone = world.gather_json(mine)
        # Only rank 0 checks the directory, and its answer travels with the reports: all ranks raise the same error.
        if lost := everyone[0]["lost"]:
            raise from_json(lost)
        metrics["time/global_fps"] = done / elapsed
        for rank, other in enumerate(everyone):
            metrics[f"time/fps_rank{rank}"] = done * other["share"] / max(other["busy"], 1e-9)
            metrics[f"time/own_seconds_rank{rank}"] = other["own"] / max(self._updates, 1)
        # Seconds per lane: a rank with more lanes than another takes longer without being slow.
        own_seconds = [other["own"] / other["share"] / world.lanes.total for other in everyone]
        self.warnings += self._stragglers.note(own_seconds, self._updates)
        # Each part's share of the wall time, averaged over ranks.
        for part in sorted({part for other in everyone for part in other["parts"]}):
            spent = sum(other["parts"].get(part, 0.0) for other in everyone)
            metrics[f"time/split_{part}"] = spent / (elapsed * world.size)
        if world.size <= _MOST_DETAILED:
            for rank, other in enumerate(everyone):
                metrics |= {f"time/split_{part}_rank{rank}": spent / elapsed for part, spent in other["parts"].items()}
                metrics |= {f"system/{name}_rank{rank}": value for name, value in other["use"].items()}
        metrics |= self._evaluation
        if self._telemetry is not None:
            metrics |= self._telemetry.latest()
        if self._log is not None:
            self._log.write(step, metrics, fingerprint())
        self._reports, self._earlier, self._timings, self._evaluation, self._updates = [], {}, {}, {}, 0
        self.start(step)
        return metrics

    def _loss(self) -> dict[str, Any] | None:
        """On rank 0 the error if this run must not write any more; None otherwise."""
        if self._world.leads:
            try:
                self._still_ours()
            except LockstepError as error:
                return to_json(error)
        return None

    def sync(self) -> None:
        """Wait until every log point so far is on disk. Rank 0 only."""
        # Before a checkpoint: a resume from it does not log the earlier steps again, so they must not be lost.
        if self._log is not None:
            self._log.sync()

    def close(self, *, in_a_hurry: bool) -> None:
        """Stop the telemetry and close the log, on the rank that has them; `in_a_hurry`: the run was cut short."""
        if self._telemetry is not None:
            self._telemetry.stop()
        if self._log is not None:
            self._log.close(in_a_hurry=in_a_hurry)
