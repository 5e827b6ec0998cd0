"""Whether runs hold the same weights at the same steps, to the last bit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.config.run_settings import PLACES
from lockstep.reporting.same_weights import Comparison
from lockstep.reports.recorded_run import RecordedRun
from lockstep.storage.manifest import step_of

Hashes = Mapping[tuple[str, int], str]
"""Hashes of weights by (kind, step). A hash of a file is not comparable with one of a log, so kinds stay apart."""


@dataclass(frozen=True)
class Agreement:
    """Two runs at the steps for which both have a hash of their weights."""

    runs: tuple[str, str]
    compared: tuple[int, ...]
    same_up_to: int | None
    """The last step before they part; None if they never agree."""
    parted_at: int | None
    """The first step at which they differ; None if they never do."""
    promised: bool = True
    """Whether the runs should have the same bits: one experiment, in exact mode."""

    @property
    def same(self) -> bool:
        """Whether they have the same bits at every compared step."""
        return bool(self.compared) and self.parted_at is None

    def __str__(self) -> str:
        names = " and ".join(self.runs)
        if not self.compared:
            return f"{names}: no step at which both have a hash of their weights"
        if self.same:
            steps = "1 step" if len(self.compared) == 1 else f"each of {len(self.compared)} steps"
            return f"{names}: the same bits at {steps}, up to step {self.compared[-1]:,}"
        why = "" if self.promised else "; only one experiment in exact mode has the same bits on any number of ranks"
        if self.same_up_to is None:
            return f"{names}: different weights, from the first step compared on ({self.parted_at:,}){why}"
        return f"{names}: the same bits up to step {self.same_up_to:,}, different from step {self.parted_at:,} on{why}"


def hashes_of(run: RecordedRun) -> dict[tuple[str, int], str]:
    """Every hash of the run's weights: logged, of checkpoints, and of best/ and final/."""
    found = {("log", step): fingerprint for step, fingerprint in run.fingerprints.items()}
    for stored in run.stored:
        # Damaged weights are not what the manifest says.
        if not stored.problems:
            kind = "weights" if step_of(stored.name.rpartition("/")[2]) is None else "checkpoint"
            found[kind, stored.step] = stored.sha256
    return found


def agreement(first: RecordedRun, second: RecordedRun) -> Agreement:
    """Compare the weights of two runs at equal steps."""
    ours, theirs = hashes_of(first), hashes_of(second)
    # At one step there may be hashes of several kinds: all of them have to agree.
    common: dict[int, bool] = {}
    for kind, step in ours.keys() & theirs.keys():
        common[step] = common.get(step, True) and ours[kind, step] == theirs[kind, step]
    found = Comparison()
    for step in sorted(common):
        found.add(step, same=common[step])
    names, promised = (first.name, second.name), _promised(first, second)
    return Agreement(names, tuple(sorted(common)), found.agreed_to, found.parted_at, promised)


def _promised(first: RecordedRun, second: RecordedRun) -> bool:
    # By the mode in force, whether or not it was asked for.
    ours, theirs = ({k: v for k, v in run.settings.items() if k not in {*PLACES, "sync"}} for run in (first, second))
    # Runs of earlier versions only say what they were asked for.
    modes = {run.summary.sync or run.settings.get("sync", "") for run in (first, second)}
    return ours == theirs and modes == {"exact"}


def pairs(runs: Sequence[RecordedRun]) -> list[Agreement]:
    """Every two of the runs that have a step in common."""
    found = [agreement(one, other) for place, one in enumerate(runs) for other in runs[place + 1 :]]
    return [pair for pair in found if pair.compared]
