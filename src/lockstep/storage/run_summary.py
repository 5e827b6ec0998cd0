"""What is known of a run at a glance, for `lockstep runs` and every other list of runs. Nothing here needs torch."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lockstep.storage import run_lock
from lockstep.storage.run_directory import LONGEST_LINE, METRICS, RunDirectory, run_paths
from lockstep.storage.run_status import Scalar, State, Status
from lockstep.untrusted import LATEST, is_counter, lines_from_end, parse_json

# Bytes at the end of metrics.jsonl in which the newest log point is looked for.
_REACH = 2 * LONGEST_LINE


@dataclass(frozen=True)
class RunSummary:
    """One run in a list of runs. All texts are printable, whoever wrote the run's files."""

    name: str
    path: Path
    workload: str
    """Empty if the status cannot be read."""
    preset: str
    """The preset it started from; empty if that is not known."""
    state: State | Literal["unreadable"]
    """`running` only while a process holds the run's lock."""
    ranks: int
    """0 = not known."""
    step: int
    total_steps: int
    """Steps after which the run is complete; 0 = not known."""
    seconds: float
    """How long it has run, over all restarts; of a killed run, up to its last checkpoint."""
    best_score: float | None
    """The best evaluation, where higher is always better: a loss is negated. None before the first evaluation."""
    score_name: str
    """What models are measured by, such as `return_mean` or `log_loss`; empty if that is not known."""
    lower_is_better: bool
    changed: Mapping[str, Scalar]
    """The settings that differ from the preset's."""
    updated: float
    """When its status last changed, in seconds since 1970."""
    sync: str = ""
    """How its ranks are kept equal, fast or exact; empty if that is not known."""

    @property
    def best(self) -> float | None:
        """The best evaluation as a number of `score_name`: a log loss is positive."""
        return -self.best_score if self.best_score is not None and self.lower_is_better else self.best_score

    @property
    def progress(self) -> float | None:
        """The share of its steps that are done, from 0 to 1; None if it is not known."""
        # Its last update would have gone beyond its steps, or it stopped early because it learned nothing more.
        if self.state == "finished":
            return 1.0
        return min(self.step / self.total_steps, 1.0) if self.total_steps else None

    def content(self) -> dict[str, Any]:
        """Everything for JSON."""
        found = {**vars(self), "path": str(self.path), "changed": dict(self.changed)}
        return found | {"best": self.best, "progress": self.progress}


def summary(run: RunDirectory) -> RunSummary:
    """What is known of a run."""
    state: State | Literal["unreadable"]
    try:
        status = run.stored_status()
        # A killed process leaves "running" behind, but the kernel has released its lock.
        alive = status.state != "running" or run_lock.is_held(run.path / "lock.json")
        state = status.state if alive else "stopped"
    except FileNotFoundError:
        status, state = Status(), "stopped"
    except (OSError, ValueError):
        status, state = Status(), "unreadable"
    if state == "running":
        status = _as_of_now(run, status)
    facts = status.facts
    return RunSummary(
        name=run.name,
        path=run.path,
        workload=status.workload,
        preset=facts.preset,
        state=state,
        ranks=facts.ranks,
        sync=facts.sync,
        step=status.step,
        total_steps=facts.total_steps,
        seconds=status.seconds,
        best_score=status.best_score,
        score_name=facts.score_name,
        lower_is_better=facts.lower_is_better,
        changed=facts.changed,
        updated=status.updated or _started(run),
    )


def list_runs(runs_dir: Path) -> list[RunSummary]:
    """Every run in a directory, the most recently updated first."""
    found = [summary(RunDirectory(path)) for path in run_paths(runs_dir)]
    return sorted(found, key=lambda run: -run.updated)


def _as_of_now(run: RunDirectory, status: Status) -> Status:
    """The status of a running run, which was written at its last checkpoint, with its newest step and its time."""
    seconds = status.seconds + max(time.time() - status.updated, 0.0)
    return replace(status, step=max(status.step, _newest_step(run)), seconds=seconds)


def _newest_step(run: RunDirectory) -> int:
    try:
        for _, line in lines_from_end(run.path / METRICS, LONGEST_LINE, _REACH):
            point = parse_json(line)
            return point["step"] if isinstance(point, dict) and is_counter(point.get("step")) else 0
    except (OSError, ValueError):
        pass  # No log yet, or one of somebody else: the status has a step, too.
    return 0


def _started(run: RunDirectory) -> float:
    try:
        when = (run.path / "config.yaml").lstat().st_mtime
    except OSError:
        return 0.0
    return min(max(when, 0.0), LATEST) if math.isfinite(when) else 0.0
