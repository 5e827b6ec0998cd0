"""Lockstep from Python, notebooks included: `train`, `sweep`, `load`, `evaluate`."""

import contextlib
import inspect
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.cli import evaluate as evaluation
from lockstep.cli import model as models
from lockstep.cli import train as starting
from lockstep.cli.argv import take_all
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.cli.sweep import PlannedSweep, SweepOptions
from lockstep.cli.train import LaunchOptions, read_run
from lockstep.config import outside
from lockstep.errors import RunFailed, UserError
from lockstep.launch import given, outcome
from lockstep.launch.stop_request import Interrupted
from lockstep.output import tell
from lockstep.reporting.sweep_report import SweepReport
from lockstep.run.hand_over import Wanted
from lockstep.storage.run_directory import RunDirectory, Status
from lockstep.storage.weights import load_weights
from lockstep.workloads import registry
from lockstep.workloads.capabilities import Translates
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


class Policy:
    """A trained network that acts. B: observations, A: actions."""

    def __init__(self, model: str, device: str = "auto") -> None:
        """`model`: a run, a directory of weights or a file, as for `lockstep eval`."""
        subject = models.find(model, ModelOptions(), [])
        subject.check_policy(TRAINED)
        trained = models.load(subject, device)
        self.workload = subject.workload.name
        self.config = subject.config.values()
        self.step = trained.step
        self._player = trained.learner.player(subject.config.run.seed)
        self._shape = trained.learner.observation_shape
        workload = subject.workload
        self._translation = workload.translation(subject.config) if isinstance(workload, Translates) else None

    def act(self, observations: NDArray[Any] | Tensor, deterministic: bool = True) -> NDArray[Any]:
        """The most probable action for one observation or each of a batch, or a sampled one: (B, ...) -> (B,).

        For vector actions: the best known action, or one with the exploration noise of training: (B, A).
        """
        seen, single = self._rows(observations)
        action = self._player.act(seen, explore=not deterministic)[0]
        if self._translation is not None:
            return self._translation.actions(action, single)
        return action[0].numpy() if single else action.numpy()

    def probabilities(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float32]:
        """The probability of every action: (B, ...) -> (B, A). Does not change a recurrent network's memory."""
        seen, single = self._rows(observations)
        found = self._player.probabilities(seen)
        if found is None:
            raise UserError(f"{self.workload}: has continuous actions, so there is no probability for each; use act")
        return found[0].numpy() if single else found.numpy()

    def forget(self, ended: NDArray[Any] | Tensor | None = None) -> None:
        """Reset the memory of all positions in the batch, or of those (B,) whose episodes ended.

        For recurrent networks, which keep a memory for each position of the batch from one call to the next.
        """
        self._player.forget(None if ended is None else torch.as_tensor(ended, dtype=torch.bool))

    def _rows(self, observations: Any) -> tuple[Any, bool]:
        """A batch of observations for the network, and whether the caller gave a single one."""
        if self._translation is not None:
            return self._translation.rows(observations)
        seen = _seen(observations)
        # Anything else than a tensor is a workload's own batch of samples.
        single = isinstance(seen, Tensor) and seen.ndim == len(self._shape)
        return (seen[None], True) if single else (seen, False)

    def __repr__(self) -> str:
        return f"Policy({self.workload}, step {self.step})"


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
    preset: str = "base",
    ranks: int | None = None,
    gpus: int | None = None,
    config: str | Path | None = None,
    runs_dir: str | Path = "runs",
    run_name: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train as `lockstep train` does; `settings` are fields of the configuration, including `algorithm` and `network`.

    `workload`: a name, a file, `module:Class`, a `Workload` class; or an environment class or a function that makes
    environments. One that lives in a module is stored by its name; any other object exists as long as this process, and
    its run is continued by calling `train` again with it and the same `run_name`.

    One rank trains in this process; several are separate processes. Raises the error that ended the run: UserError
    before anything starts, RunFailed and others after.
    """
    chosen, name = _chosen(workload)
    overrides = [f"{name}={_text(value)}" for name, value in (settings | {"runs_dir": runs_dir}).items()]
    resolved = chosen.resolve(preset, config, overrides)
    fitted, notes = chosen.fit(resolved.config, resolved.explicit)
    folder, by_time = Path(runs_dir), f"{chosen.name}-{datetime.now():%Y%m%d-%H%M%S}"
    run = RunDirectory.named(folder, run_name) if run_name else RunDirectory.fresh(folder, by_time)
    wanted = Wanted(resolved.config, fitted, tuple(notes)).named(run.name)
    options = LaunchOptions(gpus=gpus, ranks=ranks)
    try:
        if starting.ranks_here(wanted.config, options, None)[0] == 1:
            with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
                starting.start(chosen, wanted, options, [])
        else:
            launch = {"preset": preset, "ranks": ranks, "gpus": gpus, "config": config, "run_name": run.name}
            arguments = [f"{name}={_text(value)}" for name, value in launch.items() if value is not None]
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
    preset: str = "base",
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


def _seen(observations: Any) -> Any:
    """Arrays become tensors; anything with `to(device)`, such as a workload's own samples, stays as it is."""
    return observations if hasattr(observations, "to") else torch.as_tensor(observations)


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
