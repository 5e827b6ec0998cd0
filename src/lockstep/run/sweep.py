"""A sweep: ordinary runs in one folder, several at once. Run again it continues; what it knows is on disk."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import StoppedOnRequest, UserError
from lockstep.launch.job_pool import Ended, Job, JobPool
from lockstep.launch.stop_request import Interrupted
from lockstep.reporting.sweep_report import SweepReport, SweptRun, SweptState, score_name
from lockstep.storage.disk import make_directory, write_atomically
from lockstep.storage.manifest import Damaged, read_manifest
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_summary import RunSummary, summary
from lockstep.untrusted import is_file, read_json

LEDGER = "sweep.json"
_LARGEST_LEDGER = 16 << 20
_STOPPED = (Interrupted.exit_code, StoppedOnRequest.exit_code)


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    name: str
    settings: dict[str, Any]
    """The settings that differ between the runs."""
    max_updates: int
    """After which it counts as finished; 0 = no limit."""
    arguments: tuple[str, ...]
    """Of the `lockstep` command that starts or continues it."""


class Sweep:
    """The folder of a sweep: a directory for each run, a file of its output beside it, and a ledger."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path, self._say = Path(path), say
        self.stopped_by = 0
        """The signal that stopped it; 0 = none."""

    def run_of(self, member: Member) -> RunDirectory:
        """The directory of a run."""
        return RunDirectory.named(self.path, member.name)

    def train(
        self,
        members: Iterable[Member],
        total: int,
        slots: Sequence[Mapping[str, str]],
        settled: Callable[[Member], None] = lambda member: None,
        before: int = 0,
    ) -> None:
        """Train the runs that are not finished, one in each slot at a time; a failed one does not stop the others.

        members: the next is taken when a slot is free. settled: called for a run that has ended, failed, or was
        finished before; not for one that was stopped, which continues when the sweep is run again.
        before: how many of the total came before these.
        """
        self.make_folder()
        begun: dict[str, Member] = {}

        def jobs() -> Iterator[Job]:
            for number, member in enumerate(members, before + 1):
                state = self._state(member, {})
                if state in ("finished", "running"):
                    elsewhere = " in another process" if state == "running" else " already"
                    self._say(f"[{number}/{total}] {member.name}: {state}{elsewhere}")
                    if state == "finished":
                        settled(member)
                    continue
                self._say(f"[{number}/{total}] {member.name}: {'continues' if state == 'stopped' else 'starts'}")
                begun[member.name] = member
                yield Job(member.name, member.arguments, self.path / f"{member.name}.log")

        with JobPool(slots) as pool:
            for ended in pool.run(jobs()):
                stopped = ended.code in _STOPPED or (ended.code < 0 and bool(pool.stopped_by))
                self._note(ended, "" if stopped else ended.reason)
                self._say(f"{ended.job.name}: {'stopped' if stopped else self._ending(ended)}")
                if not stopped:
                    settled(begun[ended.job.name])
        self.stopped_by = pool.stopped_by

    def make_folder(self) -> None:
        """Create the folder; UserError if that is not possible."""
        try:
            make_directory(self.path)
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be created ({error.strerror}); change permissions or choose another --runs-dir"
            ) from error

    def _ending(self, ended: Ended) -> str:
        if ended.reason:
            return f"failed: {ended.reason}"
        row = summary(RunDirectory(self.path / ended.job.name))
        score = "" if row.best_score is None else f", best score {row.best_score:.4g}"
        return f"finished after {ended.seconds:.0f} s: {row.step:,} steps{score}"

    def _note(self, ended: Ended, reason: str) -> None:
        """Add a run's seconds and the reason of its failure to the ledger."""
        # Read again each time: another process may work on the same sweep.
        ledger = self._ledger()
        seconds = ended.seconds + _seconds(ledger, ended.job.name)
        ledger[ended.job.name] = {"seconds": round(seconds, 1), "reason": reason}
        write_atomically(self.path / LEDGER, json.dumps(ledger, indent=1).encode())

    def _ledger(self) -> dict[str, Any]:
        try:
            content = read_json(self.path / LEDGER, _LARGEST_LEDGER)
        except (OSError, ValueError):
            return {}  # It only adds durations and reasons to what the run directories tell.
        entries = content.items() if isinstance(content, dict) else ()
        return {name: entry for name, entry in entries if isinstance(entry, dict)}

    def report(self, members: Sequence[Member]) -> SweepReport:
        """What is known of these runs, from their directories."""
        ledger = self._ledger()
        runs = tuple(self._swept(member, ledger) for member in members)
        return SweepReport(self.path.name, self.path, self._score_name(runs), runs)

    def _swept(self, member: Member, ledger: dict[str, Any]) -> SweptRun:
        path, state = self.path / member.name, self._state(member, ledger)
        row = self._row(member)
        return SweptRun(
            member.name,
            path,
            member.settings,
            state,
            score=row.best_score if row else None,
            steps=row.step if row else 0,
            seconds=_seconds(ledger, member.name),
            reason=_reason(ledger, member.name) if state == "failed" else "",
        )

    def _score_name(self, runs: Sequence[SweptRun]) -> str:
        best = next((run for run in runs if run.score is not None), None)
        if best is None or best.score is None:
            return "score"
        return score_name(RunDirectory(best.path).log_points(), best.score)

    def _row(self, member: Member) -> RunSummary | None:
        run = self.run_of(member)
        return summary(run) if is_file(run.path / "config.yaml") else None

    def _state(self, member: Member, ledger: dict[str, Any]) -> SweptState:
        row = self._row(member)
        if row and (row.state == "finished" or _made_all(member.max_updates, self.run_of(member), row)):
            return "finished"
        if row and row.state == "running":
            return "running"
        if _reason(ledger, member.name):
            return "failed"
        return "stopped" if row else "waiting"


def _made_all(most: int, run: RunDirectory, row: RunSummary) -> bool:
    """Whether a run has made as many updates as --max-updates allows, and written its final weights."""
    newest = max((run.path / "checkpoints").glob("step-*"), default=None)
    if not most or newest is None or row.state == "running":
        return False
    try:
        updates = read_manifest(newest).extra.get("updates")
        return isinstance(updates, int) and updates >= most and read_manifest(run.path / "final").step == row.step
    except Damaged:
        return False


def _seconds(ledger: dict[str, Any], name: str) -> float:
    seconds = ledger.get(name, {}).get("seconds", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def _reason(ledger: dict[str, Any], name: str) -> str:
    reason = ledger.get(name, {}).get("reason", "")
    return reason if isinstance(reason, str) and reason.isprintable() else ""
