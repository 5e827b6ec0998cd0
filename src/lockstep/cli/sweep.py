"""`lockstep sweep`: one run for each combination of values, several at once, or a study that chooses the values."""

import itertools
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lockstep.cli import argv as command
from lockstep.cli.starting import check_same_experiment
from lockstep.cli.train import help_for
from lockstep.config.config import AnyConfig
from lockstep.config.fields import Pattern, Range
from lockstep.config.grid import Choice, Grid, digest, read_grid, run_name, split_values, value_text
from lockstep.config.run_settings import FREE_TO_CHANGE, RUN_NAME
from lockstep.config.sources import Resolved, choices
from lockstep.errors import RunFailed, StoppedOnRequest, UserError
from lockstep.launch import environment, resources
from lockstep.launch.stop_request import Interrupted
from lockstep.output import counted, show, suggest, tell
from lockstep.reporting.sweep_report import SEED, SweepReport
from lockstep.run.starting_point import absolute_origin
from lockstep.run.study import Study, Trial
from lockstep.run.sweep import Member, Sweep
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry
from lockstep.workloads.requests import read_request
from lockstep.workloads.workload import Workload

USAGE = (
    "lockstep sweep WORKLOAD --FIELD VALUE,VALUE,... [--FIELD ...] [--ranks N | --gpus N] [--at-once N] [--json]\n"
    "       lockstep sweep WORKLOAD --study N --FIELD LOWER..HIGHER [--FIELD VALUE,VALUE,...]"
)
_LONGEST_STEM = 80


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What the runs start from, and how many of them train at once."""

    preset: str = ""
    """Named configuration to start from; `lockstep list` shows them. None = base, or of branches their source's own."""
    config: Annotated[str, Pattern(".+", "the path of a YAML file")] = ""
    """YAML file whose fields override the preset's."""
    ranks: Annotated[int | None, Range(at_least=0, at_most=4096)] = None
    """Processes of each run; none = 1."""
    gpus: Annotated[int | None, Range(at_least=0, at_most=4096)] = None
    """GPUs of each run, one rank each; none = 1 if there are any."""
    at_once: Annotated[int | None, Range(at_least=1, at_most=4096)] = None
    """Runs that train at the same time; none = as many as there are GPUs or cores for."""
    max_restarts: Annotated[int, Range(at_least=0, at_most=1000)] = 3
    """How many times in a row the ranks of a run may be restarted without progress after one died."""
    sweep_name: Annotated[str, Pattern(f"({RUN_NAME})?", "a folder name")] = ""
    """Name of the sweep's folder among the runs; empty = by workload, fields and what the runs share."""
    study: Annotated[int, Range(at_least=0, at_most=100_000)] = 0
    """Runs in all of a study: Optuna chooses their values by the scores so far; 0 = every combination."""
    json: bool = False
    """Print the results as JSON; progress goes to stderr."""


def sweep(arguments: list[str]) -> int:
    """The verb `sweep`."""
    target, rest = command.take_subject(arguments, "workload", lambda rest: help_for(rest, USAGE, SweepOptions))
    if environment.launched():
        raise UserError("sweep: starts the processes of its runs itself; run it without torchrun")
    options, words = command.take(rest, SweepOptions())
    planned = PlannedSweep(registry.load(target), target, options, words)
    report, stopped_by = planned.train(lambda line: tell(line, sys.stderr if options.json else sys.stdout))
    if options.json:
        print(json.dumps(report.to_json()))
    else:
        show("\n".join(["", *report.lines()]))
    complain(report, stopped_by)
    if not options.json:
        best = [f"lockstep eval {shlex.quote(str(report.best.path))}"] if report.best else []
        suggest(*best, f"lockstep watch {shlex.quote(str(report.path))}")
    return 0


def complain(report: SweepReport, stopped_by: int) -> None:
    """Raise the error that a sweep ends with: it was stopped, or some of its runs failed."""
    if stopped_by:
        kind = Interrupted if stopped_by == signal.SIGINT else StoppedOnRequest
        raise kind(f"sweep {report.name}: stopped, its runs are saved; the same command continues it")
    if report.failed:
        count = f"{len(report.failed)} of {len(report.runs)} runs failed"
        raise RunFailed(f"sweep {report.name}: {count}; {report.path}/NAME.log has their output")


class PlannedSweep:
    """A sweep whose arguments are read and found right: nothing has been started."""

    def __init__(self, workload: Workload, target: str, options: SweepOptions, words: list[str]) -> None:
        """`words`: flags that set fields of the configuration, some with several values."""
        self._workload, self._target, self._options = workload, target, options
        self._grid = self._read(words)
        self._ranks = _ranks(options)
        first = self._resolve(_texts(next(self._grid.combinations())))
        self._first = first.config
        self._check()
        # What the data or the environment lack is told once here, and not by every run.
        workload.fit(first.config, first.explicit)
        self.path = self._place(options.sweep_name or self._automatic_name())
        self._members = [] if options.study else [self._member(values) for values in self._grid.combinations()]

    def _read(self, words: list[str]) -> Grid:
        # Algorithm and network decide which settings there are, and may be swept as well.
        chosen = choices(words, self._options.config or None)
        try:
            algorithms, networks = (split_values(chosen.get(name, "")) for name in ("algorithm", "network"))
        except ValueError as error:
            raise UserError(f"algorithm or network: {error}; give names separated by commas") from None
        presets = (
            self._workload.preset(self._options.preset or "base", algorithm, network)
            for algorithm in algorithms
            for network in networks
        )
        return read_grid([preset.layout.schema for preset in presets], words)

    def _check(self) -> None:
        grid, study = self._grid, self._options.study
        if not grid.names:
            raise UserError(
                "nothing to sweep: no field has several values; give them as --seed 1,2,3, or use `lockstep train`"
            )
        if grid.spans and not study:
            raise UserError(f"{grid.spans[0]}: a range needs --study N, the number of runs; or list the values")
        if study and SEED in grid.names:
            raise UserError("seed: a study would choose the luckiest one; give one seed, and sweep seeds afterwards")
        if study and not self._first.run.eval_every:
            raise UserError("eval_every 0: a study needs scores; set --eval-every")
        if self._first.run.run_name:
            raise UserError("run_name: the runs of a sweep are named by their values; name the sweep with --sweep-name")
        if "runs_dir" in grid.names:
            raise UserError("runs_dir: the runs of a sweep are in one folder; give one")

    def _place(self, name: str) -> Path:
        # Checked like a run's: the same names are possible, and it is no link.
        path = RunDirectory.named(Path(self._first.run.runs_dir), name).path
        if (path / "config.yaml").exists():
            raise UserError(f"{path}: is a run; choose another --sweep-name")
        return path

    def _automatic_name(self) -> str:
        """The same for the same command, also with more values: those runs are added to the sweep."""
        varied = {*self._grid.names, *FREE_TO_CHANGE}
        shared: list[Any] = [(name, value) for name, value in self._first.values().items() if name not in varied]
        # A study cannot change what it chooses from.
        shared += list(map(str, (*self._grid.axes, *self._grid.spans))) if self._options.study else []
        kind = ["study"] if self._options.study else []
        stem = "-".join([self._workload.name, *kind, *self._grid.names])[:_LONGEST_STEM]
        return f"{stem}-{digest(json.dumps([self._target, shared]))}"

    def _resolve(self, texts: Mapping[str, str]) -> Resolved[AnyConfig]:
        return read_request(self._workload, self._options.preset, self._options.config or None, self._overrides(texts))

    def _overrides(self, texts: Mapping[str, str]) -> list[str]:
        return [*self._grid.fixed, *(f"{name}={text}" for name, text in texts.items())]

    def _member(self, values: Mapping[str, Choice]) -> Member:
        """The run of a combination; UserError if its settings do not go together, or it exists with others."""
        resolved = self._resolve(_texts(values))
        settings = {name: choice.value for name, choice in values.items()}
        resolved.config.for_world(self._ranks)
        run = RunDirectory.named(self.path, run_name(settings))
        if (run.path / "config.yaml").exists():
            config, _ = self._workload.fit(resolved.config, resolved.explicit)
            check_same_experiment(run, self._workload, config.for_world(self._ranks), "--sweep-name")
        return self._named(run.name, settings, _texts(values), resolved.config.run.max_updates)

    def _trial_member(self, trial: Trial) -> Member:
        """The run of a trial. If its settings do not go together, the run fails, and the study learns from it."""
        typed = {axis.name: {choice.text: choice.value for choice in axis.choices} for axis in self._grid.axes}
        numbers = {span.name: type(span.low) for span in self._grid.spans}
        settings: dict[str, Any] = {
            name: numbers[name](text) if name in numbers else typed[name].get(text, text)
            for name, text in trial.texts.items()
        }
        most = settings.get("max_updates", self._first.run.max_updates)
        return self._named(f"trial-{trial.number:04}", settings, trial.texts, most)

    def _named(self, name: str, settings: dict[str, Any], texts: Mapping[str, str], max_updates: int) -> Member:
        options = self._options
        launch = {"preset": options.preset, "config": options.config, "max_restarts": options.max_restarts}
        launch |= {"gpus": options.gpus} if options.gpus is not None else {"ranks": self._ranks}
        words = [f"{key}={value_text(value)}" for key, value in launch.items() if value != ""]
        # Runs in the sweep's own folder would not find others by their names.
        origin = absolute_origin(self._overrides(texts), options.config or None)
        place = [f"runs_dir={self.path}", f"run_name={name}"]
        arguments = ("train", self._target, *words, *self._overrides(texts), *origin, *place)
        return Member(name, settings, max_updates, arguments)

    def train(self, say: Callable[[str], None]) -> tuple[SweepReport, int]:
        """Train what is not finished; returns what all runs found, and the signal that stopped the sweep (or 0)."""
        found = Sweep(self.path, say)
        total = self._options.study or len(self._members)
        slots = self._slots(total)
        for line in self._plan(total, slots):
            say(line)
        if self._options.study:
            return self._train_study(found, slots), found.stopped_by
        found.train(self._members, total, slots)
        return found.report(self._members), found.stopped_by

    def _train_study(self, found: Sweep, slots: list[dict[str, str]]) -> SweepReport:
        found.make_folder()
        study = Study(found.path, self._grid, self._first.run.seed)
        known, numbers = study.trials(), dict[str, int]()
        new = max(0, self._options.study - len(known))

        def members() -> Iterator[Member]:
            # First those that were stopped before they had a score. A new one is asked for when a run can start, so
            # that the study knows the scores of those before.
            for trial in itertools.chain(filter(lambda trial: trial.open, known), (study.ask() for _ in range(new))):
                member = self._trial_member(trial)
                numbers[member.name] = trial.number
                yield member

        def tell_study(member: Member) -> None:
            (run,) = found.report([member]).runs
            study.tell(numbers[member.name], run.score if run.state == "finished" else None)

        over = sum(not trial.open for trial in known)
        found.train(members(), max(self._options.study, len(known)), slots, tell_study, before=over)
        return found.report([self._trial_member(trial) for trial in study.trials()])

    def _slots(self, total: int) -> list[dict[str, str]]:
        device = self._first.run.device
        at_once = self._options.at_once or (1 if device == "mps" else None)
        return resources.shares(total, self._ranks, at_once, 0 if device == "cpu" else resources.visible_gpus())

    def _plan(self, total: int, slots: list[dict[str, str]]) -> list[str]:
        gpus = ", GPUs of their own" if "CUDA_VISIBLE_DEVICES" in slots[0] else ""
        each = f"{counted(self._ranks, 'rank')} each, {counted(int(slots[0]['OMP_NUM_THREADS']), 'thread')} a rank"
        varied = [f"{'':12} {part}" for part in (*self._grid.axes, *self._grid.spans)]
        return [
            f"{'sweep':12} {total} runs in {self.path}, their output in NAME.log there",
            *varied,
            f"{'at once':12} {len(slots)}, {each}{gpus}",
        ]


def _texts(values: Mapping[str, Choice]) -> dict[str, str]:
    return {name: choice.text for name, choice in values.items()}


def _ranks(options: SweepOptions) -> int:
    """The ranks of each run; one by default, since several runs make better use of several GPUs than one run does."""
    if options.gpus is None and options.ranks is None:
        return 1
    return resources.decide_ranks(options.gpus, options.ranks)
