"""`lockstep verify`: prove that 1 and N ranks train the same model, or that a run's files are what was written."""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.table import Table

from lockstep.core.config.fields import Count, Pattern
from lockstep.core.config.run_config import RunConfig
from lockstep.core.config.sources import resolve, to_yaml
from lockstep.core.errors import NoValidCheckpoint, RunFailed, UserError
from lockstep.core.storage.run_directory import RunDirectory
from lockstep.verbs import words as command
from lockstep.workloads import registry
from lockstep.workloads.registry import Workload

USAGE = "lockstep verify WORKLOAD [--ranks 1,2,4] [--updates N] [--FIELD VALUE]...   or   lockstep verify RUN"
TOLERANCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """What is compared."""

    ranks: Annotated[str, Pattern(r"\d{1,3}(,\d{1,3})*", "numbers of ranks, such as 1,2,4")] = "1,2"
    """Numbers of ranks; exact mode is tried on every number up to the largest."""
    updates: Count = 20
    """Updates that each of them trains for."""
    preset: str = "debug"
    """Named configuration to train."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the ranks compute."""


@dataclass(frozen=True)
class Trial:
    """One short training: what came out of it, and how far that is from the same on one rank."""

    sync: str
    ranks: int
    sha256: str
    weights: float
    optimizer: float
    metrics: float

    @property
    def holds(self) -> bool:
        """Whether the promise of its mode is kept: no difference at all in exact, rounding in fast."""
        differences = (self.weights, self.optimizer, self.metrics)
        return not any(differences) if self.sync == "exact" else self.weights <= TOLERANCE


def verify(words: list[str]) -> int:
    """The verb `verify`."""
    subject, rest = command.take_subject(words, "workload or run", lambda _: command.help_text(USAGE, VerifyOptions))
    if subject in registry.names():
        return _verify_workload(registry.load(subject), rest)
    return _verify_run(RunDirectory.find(subject, Path("runs"), registry.names()), rest)


def _verify_run(run: RunDirectory, rest: list[str]) -> int:
    from lockstep.core.storage import shelf

    if rest:
        raise UserError(f"'{rest[0]}': verifying a run takes no flags")
    verdicts = shelf.verify_run(run.path)
    for name, problems in verdicts.items():
        print(f"{name:32} {'DAMAGED' if problems else 'intact'}")
        for problem in problems:
            print(f"    {problem}")
    damaged = [name for name, problems in verdicts.items() if problems]
    if not verdicts:
        raise NoValidCheckpoint(f"{run.path}: has no checkpoint yet")
    if damaged:
        raise NoValidCheckpoint(f"{run.path}: {len(damaged)} of {len(verdicts)} are damaged: {', '.join(damaged)}")
    return 0


def _verify_workload(workload: Workload, rest: list[str]) -> int:
    from lockstep.core.distributed.world import choose_device

    options, rest = command.take(rest, VerifyOptions())
    resolved = resolve(workload.preset(options.preset), overrides=rest)
    if "sync" in resolved.explicit:
        raise UserError("sync: both modes are verified; leave it out")
    config = workload.fit(resolved.config, resolved.explicit)[0]
    sizes = sorted({1, *(int(size) for size in options.ranks.split(","))})
    choose_device(options.device, 0)
    lanes = config.effective_lanes
    if sizes[0] < 1 or sizes[-1] > lanes:
        raise UserError(f"--ranks {options.ranks}: allowed are 1 to {lanes}, the lanes of this configuration")
    print(
        f"{workload.name}, preset {options.preset}: {options.updates} updates on each number of ranks ...", flush=True
    )
    trials = list(run_trials(workload, config, sizes, options.updates, options.device))
    Console().print(_table(trials, options.updates))
    broken = [f"{trial.sync} on {trial.ranks} ranks" for trial in trials if not trial.holds]
    if broken:
        raise RunFailed(f"not the same model: {', '.join(broken)}")
    hashes = {trial.sha256 for trial in trials if trial.sync == "exact"}
    print(f"fast: within {TOLERANCE:g} of one rank.  exact: {len(hashes)} sha256 for 1 to {sizes[-1]} ranks.")
    return 0


def run_trials(
    workload: Workload, config: RunConfig, sizes: list[int], updates: int, device: str = "cpu"
) -> Iterator[Trial]:
    """A short training in both modes on every number of ranks, each compared with one rank."""
    from lockstep.core.distributed.pool import RankPool

    exact_sizes = range(1, sizes[-1] + 1)
    with RankPool(sizes[-1], device=device) as pool, tempfile.TemporaryDirectory() as folder:
        for sync, counts in (("fast", sizes), ("exact", exact_sizes)):
            # The last update's metrics are compared, so every update has to have some.
            settings: dict[str, Any] = {"sync": sync, "threads": 1, "device": device, "log_every": 1}
            text = to_yaml(replace(config, **settings))
            answers: dict[int, dict[str, Any]] = {}
            for count in counts:
                place = Path(folder) / f"{sync}-{count}"
                place.mkdir()
                arguments = (workload.name, text, updates, str(place))
                answers[count] = pool.run("lockstep.verbs.trial:train_briefly", *arguments, ranks=count, timeout=600)[0]
                yield _compare(sync, count, answers, Path(folder))


def _compare(sync: str, ranks: int, answers: dict[int, dict[str, Any]], folder: Path) -> Trial:
    one, many = folder / f"{sync}-1", folder / f"{sync}-{ranks}"
    return Trial(
        sync,
        ranks,
        answers[ranks]["sha256"],
        relative_difference(one / "model.safetensors", many / "model.safetensors"),
        relative_difference(one / "optimizer.safetensors", many / "optimizer.safetensors"),
        _largest_difference(answers[1]["metrics"], answers[ranks]["metrics"]),
    )


def relative_difference(one: Path, other: Path) -> float:
    """The length of the difference of two files of tensors, relative to the first's."""
    from lockstep.core.storage.tensor_file import decode
    from lockstep.core.storage.untrusted import LARGEST_NUMBER, read_regular

    first, second = (decode(read_regular(path, LARGEST_NUMBER)) for path in (one, other))
    if first.keys() != second.keys():
        return math.inf
    apart = sum(float((first[name].double() - second[name].double()).square().sum()) for name in first)
    length = sum(float(value.double().square().sum()) for value in first.values())
    return math.sqrt(apart / length) if length else 0.0


def _largest_difference(one: dict[str, float], other: dict[str, float]) -> float:
    """Over all metrics, relative to their size (absolute for those near zero)."""
    if one.keys() != other.keys():
        return math.inf
    return max(abs(one[tag] - other[tag]) / max(abs(one[tag]), 1.0) for tag in one)


def _table(trials: list[Trial], updates: int) -> Table:
    table = Table(title=f"difference to one rank after {updates} updates")
    for column in ("sync", "ranks", "weights", "optimiser", "metrics", "sha256", ""):
        table.add_column(column, no_wrap=True)
    for trial in trials:
        numbers = (f"{value:.1e}" if value else "0" for value in (trial.weights, trial.optimizer, trial.metrics))
        table.add_row(trial.sync, str(trial.ranks), *numbers, trial.sha256[:16], "holds" if trial.holds else "BROKEN")
    return table
