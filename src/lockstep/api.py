"""Lockstep from Python, notebooks included: `train`, `fit`, `load`, `evaluate`."""

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
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lockstep.cli import evaluate as evaluation
from lockstep.cli import model as models
from lockstep.cli import train as starting
from lockstep.cli.argv import take_all
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.cli.train import LaunchOptions, read_run
from lockstep.config import outside
from lockstep.errors import RunFailed, UserError
from lockstep.launch import given, outcome
from lockstep.launch.stop_request import Interrupted
from lockstep.reporting.metrics import LONGEST_LINE, METRICS
from lockstep.run.hand_over import Wanted
from lockstep.run.learner import Player
from lockstep.storage.run_directory import RunDirectory, Status
from lockstep.storage.weights import load_weights
from lockstep.untrusted import parse_json, whole_lines
from lockstep.workloads import registry
from lockstep.workloads.capabilities import AnswersInputs
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
        path = self.path / METRICS
        try:
            # A run in progress may be in the middle of writing a line, so only complete ones are read.
            return [parse_json(line) for line in whole_lines(path, LONGEST_LINE)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


class Policy:
    """A trained network that acts, or predicts. B: observations, A: actions."""

    def __init__(self, model: str, device: str = "auto") -> None:
        """`model`: a run, a directory of weights or a file, as for `lockstep eval`."""
        subject = models.find(model, ModelOptions(), [])
        subject.check_policy(TRAINED)
        trained = models.load(subject, device)
        self.workload = subject.workload.name
        self.config = subject.config.values()
        self.step = trained.step
        self._subject, self._trained = subject, trained

    @cached_property
    def _player(self) -> Player:
        return self._trained.learner.player(self._subject.config.run.seed)

    @cached_property
    def _predictor(self) -> Callable[[Any], Any]:
        workload = self._subject.workload
        if not isinstance(workload, AnswersInputs):
            raise UserError(f"{self.workload}: its model acts and does not predict; use act")
        return workload.predictor(self._subject.config, self._trained.learner, self._trained.world)

    def predict(self, inputs: Any) -> Any:
        """What a model predicts that was trained on data, as arrays.

        `fit`: the module's output for a batch of inputs or a single one, in the form of the dataset's items, without
        their targets: an array, a tuple of several inputs, or a dict. cricket: the probabilities of each outcome (B, 7)
        for every ball but the first of an innings, of matches given by the path of a file, folder or zip.
        """
        return _arrays(self._predictor(inputs))

    def act(self, observations: NDArray[Any] | Tensor, deterministic: bool = True) -> NDArray[Any]:
        """The most probable action for each observation, or a sampled one: (B, ...) -> (B,).

        For vector actions: the best known action, or one with the exploration noise of training: (B, A).
        """
        return self._player.act(_seen(observations), explore=not deterministic)[0].numpy()

    def probabilities(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float32]:
        """The probability of every action: (B, ...) -> (B, A). Does not change a recurrent network's memory."""
        found = self._player.probabilities(_seen(observations))
        if found is None:
            raise UserError(f"{self.workload}: has continuous actions, so there is no probability for each; use act")
        return found.numpy()

    def forget(self, ended: NDArray[Any] | Tensor | None = None) -> None:
        """Reset the memory of all positions in the batch, or of those (B,) whose episodes ended.

        For recurrent networks, which keep a memory for each position of the batch from one call to the next.
        """
        self._player.forget(None if ended is None else torch.as_tensor(ended, dtype=torch.bool))

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
    if _is_workload(workload):
        chosen, name = workload(), workload().target
    else:
        name = _name(workload)
        chosen = registry.load(name)
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
            for value in [name, *settings.values()]:
                given.refuse_unsendable(str(value))
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


def _is_workload(thing: Any) -> TypeGuard[type[Workload]]:
    return inspect.isclass(thing) and issubclass(thing, Workload)


def _name(workload: str | Callable[..., Any]) -> str:
    """The name of a workload; objects that no other process could find by name are given one."""
    if isinstance(workload, str):
        return workload
    return outside.name_of(workload) or given.give(workload, _label(workload))


def _label(thing: Any) -> str:
    """A name for an object that has none, in reports."""
    name = getattr(thing, "__name__", type(thing).__name__)
    return "function" if name == "<lambda>" else name


def _arrays(found: Any) -> Any:
    """Tensors as arrays, also in tuples and dicts."""
    if isinstance(found, dict):
        return {name: _arrays(value) for name, value in found.items()}
    if isinstance(found, tuple):
        return tuple(map(_arrays, found))
    return found.numpy() if isinstance(found, Tensor) else found


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
