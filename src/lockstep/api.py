"""Lockstep from Python, notebooks included: `train`, `fit`, `sweep`, `load`, `evaluate`."""

import contextlib
import hashlib
import inspect
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lockstep.cli import evaluate as evaluation
from lockstep.cli import model as models
from lockstep.cli import starting
from lockstep.cli.argv import take_all
from lockstep.cli.model import TRAINED
from lockstep.cli.starting import LaunchOptions, read_run
from lockstep.cli.sweep import PlannedSweep, SweepOptions
from lockstep.config import outside
from lockstep.errors import RunFailed, UserError
from lockstep.launch import given, outcome
from lockstep.launch.stop_request import Interrupted
from lockstep.output import tell
from lockstep.policy import Policy
from lockstep.reporting.sweep_report import SweepReport
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_status import Status
from lockstep.storage.weights import load_weights
from lockstep.workloads import registry
from lockstep.workloads.requests import read_wanted
from lockstep.workloads.workload import Workload


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def name(self) -> str:
        """Its name among the runs."""
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        """The configuration it was started with, field by field."""
        return read_run(RunDirectory(self.path))[1].values()

    @property
    def best(self) -> Path:
        """Directory of the weights with the best evaluation; absent before the first one."""
        return self.path / "best"

    @property
    def final(self) -> Path:
        """Directory of the weights at the end of the run; absent before that."""
        return self.path / "final"

    @property
    def status(self) -> Status:
        """Whether it is running, finished or stopped, its step and its best score."""
        return RunDirectory(self.path).status()

    def weights(self, which: str = "final") -> dict[str, Tensor]:
        """The weights by parameter name; `which`: final, best, or the name of a checkpoint."""
        folder = self.path / which if which in ("final", "best") else self.path / "checkpoints" / which
        return load_weights(folder)[0]

    def metrics(self) -> list[dict[str, Any]]:
        """Every log point: step, time and tags."""
        return RunDirectory(self.path).log_points()


def load(run_or_path: Run | str | Path, device: str = "auto") -> Policy:
    """Load a trained model: a run (final weights, else best, else newest checkpoint), a directory or a file."""
    return Policy(_named(run_or_path), device)


def evaluate(run_or_path: Run | str | Path, episodes: int = 100, seed: int = 2025) -> dict[str, Any]:
    """Play whole episodes; returns what `lockstep eval --json` prints. Writes nothing."""
    options = take_all([f"episodes={episodes}", f"seed={seed}", "report=false"], evaluation.EvaluateOptions())
    subject = models.find(_named(run_or_path), options, [])
    subject.check_policy(TRAINED)
    return evaluation.measure(subject, options)[0]


def train(
    workload: str | type[Workload] | Callable[..., Any],
    *,
    preset: str = "",
    ranks: int | None = None,
    gpus: int | None = None,
    config: str | Path | None = None,
    runs_dir: str | Path = "runs",
    run_name: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train as `lockstep train` does; `settings` are fields of the configuration, including `algorithm` and `network`.

    `preset`: empty = base, or with `branch_from` the settings of that run.

    `workload`: a name, a file, `module:Class`, a `Workload` class; or an environment class or a function that makes
    environments. One that lives in a module is stored by its name; any other object exists as long as this process, and
    its run is continued by calling `train` again with it and the same `run_name`.

    One rank trains in this process; several are separate processes. Raises the error that ended the run: UserError
    before anything starts, RunFailed and others after.
    """
    chosen, name = _chosen(workload)
    overrides = [f"{key}={_text(value)}" for key, value in (settings | {"runs_dir": runs_dir}).items()]
    wanted = read_wanted(chosen, preset, config, overrides)
    folder, by_time = Path(runs_dir), f"{chosen.name}-{datetime.now():%Y%m%d-%H%M%S}"
    run = RunDirectory.named(folder, run_name) if run_name else RunDirectory.fresh(folder, by_time)
    options = LaunchOptions(gpus=gpus, ranks=ranks)
    try:
        if starting.ranks_here(wanted.config, options, None)[0] == 1:
            with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
                if wanted.config.run.autotune:
                    # Only here: the command that starts several ranks tries sizes by itself.
                    wanted = read_wanted(chosen, preset, config, overrides, starting.tuner(chosen, options))
                starting.start(chosen, wanted.named(run.name), options, [])
        else:
            for value in [name, *settings.values()]:
                given.refuse_unsendable(str(value))
            launch = {"preset": preset, "ranks": ranks, "gpus": gpus, "config": config, "run_name": run.name}
            arguments = [f"{key}={_text(value)}" for key, value in launch.items() if value is not None]
            _run_command(["train", name, *arguments, *overrides], quiet)
    except Interrupted as stopped:
        # The run has saved a checkpoint. Notebooks expect KeyboardInterrupt after Ctrl-C.
        raise KeyboardInterrupt(str(stopped)) from stopped
    except UserError:
        # RunDirectory.fresh created the folder to reserve its name; removed if no run started.
        if not run_name:
            with contextlib.suppress(OSError):  # not empty: keep it
                run.path.rmdir()
        raise
    return Run(run.path.absolute())


def fit(
    model: nn.Module | Callable[[], nn.Module],
    train_set: Any,
    val_set: Any,
    *,
    loss: str | Callable[[Any, Any], Tensor] = "cross_entropy",
    metrics: Mapping[str, Callable[[Any, Any], Tensor]] | None = None,
    evaluate: Callable[[Callable[..., Any], Any], Mapping[str, float]] | None = None,
    **settings: Any,
) -> Run:
    """Train a module on a dataset; `settings`: as for `train`, such as batch_size, epochs, ranks, run_name. B: samples.

    `model`: a module, which is copied, or a function that returns one. Datasets: map-style or iterable, or functions
    that return one; items are tuples (inputs..., target), dicts with a `target`, or single tensors.
    `loss`: cross_entropy, focal, mse, l1, or a function (prediction, target) -> (B,), one number for each sample: the
    mean is taken over all ranks. `metrics`: such functions by name. `evaluate`: (predict, val_set) -> {name: number}.
    """
    things = {"model": model, "train_data": train_set, "val_data": val_set, "evaluation": evaluate}
    settings |= {name: _given_name(thing, name) for name, thing in things.items() if thing is not None}
    settings["loss"] = loss if isinstance(loss, str) else _given_name(loss, "loss")
    labelled = (f"{label}={_given_name(function, f'metric-{label}')}" for label, function in (metrics or {}).items())
    settings["metrics"] = ",".join(labelled)
    return train("fit", **settings)


def _given_name(thing: Any, role: str) -> str:
    """The name of an object for the processes of a run; one in no module is told apart by its role and kind."""
    if name := outside.name_of(thing):
        return name
    kind = _label(thing)
    if isinstance(thing, nn.Module):
        # Modules of another structure have another name: a run that is loaded later must not get them.
        kind += f"-{hashlib.sha256(repr(thing).encode()).hexdigest()[:8]}"
    return given.give(thing, f"{role}-{kind}")


def _chosen(workload: str | type[Workload] | Callable[..., Any]) -> tuple[Workload, str]:
    """The workload that a caller means, and the name by which other processes load it."""
    if inspect.isclass(workload) and issubclass(workload, Workload):
        return workload(), workload().target
    if callable(workload):
        # An object that no other process could find by name is given one.
        workload = outside.name_of(workload) or given.give(workload, _label(workload))
    return registry.load(workload), workload


def _label(thing: Any) -> str:
    """A name for an object that has none, in reports."""
    name = getattr(thing, "__name__", type(thing).__name__)
    return "function" if name == "<lambda>" else name


def sweep(
    workload: str | type[Workload] | Callable[..., Any],
    *,
    preset: str = "",
    ranks: int | None = None,
    gpus: int | None = None,
    at_once: int | None = None,
    study: int = 0,
    config: str | Path | None = None,
    sweep_name: str = "",
    quiet: bool = False,
    **settings: Any,
) -> SweepReport:
    """Train every combination as `lockstep sweep` does; a list is several values: `seed=[1, 2, 3]`.

    With `study`, a pair as a string is a range: `learning_rate="1e-5..1e-2"`. Runs that failed are in the report.
    """
    chosen, name = _chosen(workload)
    launch = {"preset": preset, "ranks": ranks, "gpus": gpus, "at_once": at_once, "study": study, "config": config}
    arguments = [f"{key}={_text(value)}" for key, value in launch.items() if value is not None]
    options = take_all([*arguments, f"sweep_name={sweep_name}"], SweepOptions())
    values = [f"{key}={_texts(value)}" for key, value in settings.items()]
    planned = PlannedSweep(chosen, name, options, values)
    report, stopped_by = planned.train((lambda line: None) if quiet else tell)
    if stopped_by:
        raise KeyboardInterrupt(f"sweep {report.name}: stopped; the same call continues it")
    return report


def _texts(value: Any) -> str:
    """One value or several as they are written on the command line; each text in quotes, since it may have commas."""
    if isinstance(value, list | tuple):
        return ",".join(f'"{item}"' if isinstance(item, str) else _text(item) for item in value)
    return _text(value)


def _named(run_or_path: Run | str | Path) -> str:
    return str(run_or_path.path if isinstance(run_or_path, Run) else run_or_path)


def _text(value: Any) -> str:
    """A value as it is written on the command line."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _run_command(arguments: list[str], quiet: bool) -> None:
    """Run one command and forward its output to this process's stdout; raises the error it ended with."""
    with tempfile.TemporaryDirectory(prefix="lockstep-outcome-") as folder:
        ending = Path(folder) / "error.json"
        variables = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", outcome.VARIABLE: str(ending)}
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **variables},
            start_new_session=True,  # Ctrl-C reaches it once, forwarded below, and not also from the terminal.
        )
        try:
            _pass_on(process, quiet)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            _pass_on(process, quiet)  # It saves a checkpoint before it exits.
            raise
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
        if process.returncode:
            raise outcome.read(ending) or _unexplained(process.returncode)


def _pass_on(process: subprocess.Popen[str], quiet: bool) -> None:
    """Forward lines as they arrive, until the process has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        if not quiet:
            # A notebook's stdout has no file descriptor that the process could inherit.
            sys.stdout.write(line)
            sys.stdout.flush()
    process.wait()


def _unexplained(code: int) -> RunFailed:
    """The error for a command that ended without reporting a reason."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return RunFailed(f"the run {how}; `lockstep resume` continues from its newest checkpoint")
