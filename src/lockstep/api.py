"""Lockstep from Python, notebooks included: `train`, `load`, `evaluate`."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.cli import evaluate as evaluation
from lockstep.cli import model as models
from lockstep.cli.argv import take, take_all
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.cli.player import player_of
from lockstep.cli.train import TrainOptions, read_config, read_run
from lockstep.errors import LockstepError, NoValidCheckpoint, RunFailed, StoppedOnRequest, UserError
from lockstep.launch.stop_request import Interrupted
from lockstep.reporting.metrics import LONGEST_LINE, METRICS
from lockstep.storage.run_directory import RunDirectory
from lockstep.untrusted import parse_json, whole_lines
from lockstep.workloads import registry

_ERRORS: dict[int, type[LockstepError]] = {
    error.exit_code: error for error in (UserError, RunFailed, NoValidCheckpoint, StoppedOnRequest, Interrupted)
}
_SPOKEN = "lockstep: "
_AFTERWARDS = ("not restarted", "restarting ", "rank(s) ")
"""How the lines begin in which the launcher tells what followed from a failure."""


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
        """What it was started with, field by field."""
        return asdict(read_run(RunDirectory(self.path))[1])

    @property
    def best(self) -> Path:
        """Where the weights with the best evaluation lie, once there was one."""
        return self.path / "best"

    @property
    def final(self) -> Path:
        """Where the weights at the end of the run lie."""
        return self.path / "final"

    def metrics(self) -> list[dict[str, Any]]:
        """Every log point: step, time and tags."""
        path = self.path / METRICS
        try:
            # A run that is still going may be in the middle of a line.
            return [parse_json(line) for line in whole_lines(path, LONGEST_LINE)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


class Policy:
    """A trained network that plays. B: observations, A: actions."""

    def __init__(self, model: str, device: str = "auto") -> None:
        """`model`: a run, a directory of weights or a file, as `lockstep eval` takes it."""
        subject = models.find(model, ModelOptions(), [])
        subject.check_policy(TRAINED)
        trained = models.load(subject, device)
        self.workload = subject.workload.name
        self.config = asdict(subject.config)
        self.step = trained.step
        self._player = player_of(subject, trained, subject.config.seed)

    def act(self, observations: NDArray[Any] | Tensor, deterministic: bool = True) -> NDArray[Any]:
        """The most probable action for each observation, or one drawn by the probabilities: (B, ...) -> (B,).

        Where actions are vectors, the best that is known, or with the noise of training: (B, A).
        """
        return self._player.act(_seen(observations), deterministic)[0].numpy()

    def probabilities(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float32]:
        """The probability of every action: (B, ...) -> (B, A). Nothing of it is remembered."""
        chances = self._player.look(_seen(observations))
        if chances is None:
            raise UserError(f"{self.workload}: its actions are vectors, which have no probability each; use act")
        return chances.numpy()

    def forget(self, ended: NDArray[Any] | Tensor | None = None) -> None:
        """Forget what was seen, of all observations' places or of those (B,) whose episodes ended.

        For networks with a memory, which remember each place of a batch from one call to the next.
        """
        self._player.forget(None if ended is None else torch.as_tensor(ended, dtype=torch.bool))

    def __repr__(self) -> str:
        return f"Policy({self.workload}, step {self.step})"


def load(run_or_path: Run | str | Path, device: str = "auto") -> Policy:
    """A trained model: a run (its final weights, else its best, else its newest checkpoint), a directory or a file."""
    return Policy(_named(run_or_path), device)


def evaluate(run_or_path: Run | str | Path, episodes: int = 100, seed: int = 2025) -> dict[str, Any]:
    """Play whole episodes: what `lockstep eval --json` prints. Writes nothing."""
    options = take_all([f"episodes={episodes}", f"seed={seed}", "report=false"], evaluation.EvaluateOptions())
    subject = models.find(_named(run_or_path), options, [])
    subject.check_policy(TRAINED)
    return evaluation.measure(subject, options)[0]


def train(
    workload: str,
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
    """Train as `lockstep train` does, in processes of their own; `settings` are fields of the configuration.

    Raises what the run ended with: UserError before anything starts, RunFailed and others after.
    """
    chosen = {"preset": preset, "ranks": ranks, "gpus": gpus, "config": config, "runs_dir": runs_dir, **settings}
    words = [f"{name}={_text(value)}" for name, value in chosen.items() if value is not None or name in settings]
    options, fields = take(words, TrainOptions())
    read_config(registry.load(workload), options, fields)
    folder, by_time = Path(runs_dir), f"{workload}-{datetime.now():%Y%m%d-%H%M%S}"
    run = RunDirectory.named(folder, run_name) if run_name else RunDirectory.fresh(folder, by_time)
    try:
        _run_command(["train", workload, *words, f"run_name={run.name}"], quiet)
    except UserError:
        if not run_name:
            with contextlib.suppress(OSError):  # there is something in it
                run.path.rmdir()
        raise
    return Run(run.path.absolute())


def _named(run_or_path: Run | str | Path) -> str:
    return str(run_or_path.path if isinstance(run_or_path, Run) else run_or_path)


def _seen(observations: Any) -> Any:
    """Arrays as tensors; what can be moved to a device as it is, such as a workload's own samples."""
    return observations if hasattr(observations, "to") else torch.as_tensor(observations)


def _text(value: Any) -> str:
    """A value as it is written on the command line."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _run_command(words: list[str], quiet: bool) -> None:
    """Run one command to its end, its lines passed on to wherever this Python prints; raises what it ended with."""
    said: deque[str] = deque(maxlen=100)
    process = subprocess.Popen(
        [sys.executable, "-m", "lockstep", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        start_new_session=True,  # Ctrl-C reaches it once, from here, and not a second time from the terminal.
    )
    try:
        _pass_on(process, said, quiet)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        _pass_on(process, said, quiet)  # It saves before it goes.
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    if process.returncode:
        raise _error(process.returncode, said)


def _pass_on(process: subprocess.Popen[str], said: deque[str], quiet: bool) -> None:
    """Hand lines on as they come, until there are no more and the process has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line.strip())
        if not quiet:
            # A notebook's stdout is an object of its own, with no file behind it that the process could be given.
            sys.stdout.write(line)
            sys.stdout.flush()
    process.wait()


def _error(code: int, said: Iterable[str]) -> LockstepError:
    """The error that an exit code stands for, with the line that the command said."""
    if code < 0:
        return RunFailed(
            f"the run was ended by {signal.Signals(-code).name}; `lockstep resume` goes on from its newest checkpoint"
        )
    spoken = [line.removeprefix(_SPOKEN) for line in said if line.startswith(_SPOKEN)]
    error = _ERRORS.get(code, RunFailed)(_cause(spoken) or [f"exit code {code}", *filter(None, said)][-1])
    error.exit_code = code
    return error


def _cause(spoken: list[str]) -> str:
    """The line that tells why, with the last of those indented below it; the launcher says more around it."""
    told = [line for line in spoken if not line.startswith(_AFTERWARDS)]
    heads = [line for line in told if not line.startswith(" ")]
    details = [told[-1].strip()] if told and told[-1].startswith(" ") else []
    return ": ".join(heads[-1:] + details)
