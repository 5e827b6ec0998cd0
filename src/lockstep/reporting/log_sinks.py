"""Where log points go besides metrics.jsonl: TensorBoard, W&B, trackio, MLflow, a CSV file.

Each is used only by the thread that created it, may raise anything, and imports its package when it is opened.
"""

import csv
import io
import os
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.storage.disk import write_atomically
from lockstep.untrusted import open_to_append, read_regular

# Bytes of a file that holds an id.
_LONGEST_ID = 100
# Bytes of a CSV file that are read to continue it.
_LARGEST_CSV = 256 << 20
# Most values that MLflow takes in one request.
_AT_ONCE = 100
# Characters of a setting that MLflow takes.
_LONGEST_SETTING = 500


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """What loggers are told of a run."""

    directory: Path
    resume_step: int | None = None
    """The step of a resume; None for a new run."""
    project: str = "lockstep"
    entity: str = ""
    """The team or user that the project belongs to; empty = the logger's default."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every setting with its value."""
    score: str = ""
    """The metric by which runs are compared."""

    def identity(self, name: str) -> str:
        """A random id that is stored with the run, so that a resume continues in the same place."""
        path = self.directory / name
        if not path.exists():
            write_atomically(path, secrets.token_hex(8).encode())
        return read_regular(path, _LONGEST_ID).decode("ascii")


class TensorBoard:
    """One series of event files; after a resume, viewers discard what was logged after the checkpoint."""

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second of imports, kept off the main thread
        from torch.utils.tensorboard.summary import hparams

        threading.excepthook = _pass_over_tensorboard
        directory = run.directory / "tensorboard"
        # purge_step makes viewers drop earlier events from that step on; a new run has none to drop.
        used = directory.is_dir() and any(directory.iterdir())
        first = 0 if run.resume_step is None else run.resume_step + 1
        self._writer = SummaryWriter(str(directory), purge_step=first if used else None)
        if run.settings:
            # Not add_hparams, which would begin another run in a folder below.
            known = {name: value if value is not None else "none" for name, value in run.settings.items()}
            for summary in hparams(known, {run.score: None} if run.score else {}):
                self._writer._get_file_writer().add_summary(summary)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, global_step=step, walltime=when)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """One W&B run per run directory, however often it is resumed."""

    def __init__(self, run: LoggedRun) -> None:
        import wandb  # an optional dependency

        self._run = wandb.init(
            name=run.directory.name,
            dir=str(run.directory),
            id=run.identity("wandb_id"),
            resume="allow",
            allow_val_change=True,
            project=run.project,
            entity=run.entity or None,
            config=dict(run.settings),
        )

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point; W&B itself ignores steps that it already has."""
        self._run.log({**values, "time": when}, step=step)

    def close(self) -> None:
        """Flush and finish the W&B run."""
        self._run.finish()


class Trackio:
    """One trackio run per run directory: trackio continues the one of the same name."""

    def __init__(self, run: LoggedRun) -> None:
        import trackio  # an optional dependency

        # Names are all that trackio tells runs apart by, and another folder may have a run of this name.
        name = f"{run.directory.name}-{run.identity('trackio_id')[:8]}"
        self._run = trackio.init(project=run.project, name=name, config=dict(run.settings), resume="allow", embed=False)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Flush and finish."""
        self._run.finish()


class MLflow:
    """One MLflow run per run directory; where MLFLOW_TRACKING_URI names no server, in a database beside the run."""

    def __init__(self, run: LoggedRun) -> None:
        from mlflow import MlflowClient  # an optional dependency
        from mlflow.entities import Metric, Param, RunTag

        self._metric = Metric
        # The client, and not `mlflow.start_run`, whose current run all threads of the process share.
        here = f"sqlite:///{run.directory.parent.resolve() / 'mlflow.db'}"
        self._client = MlflowClient(None if os.environ.get("MLFLOW_TRACKING_URI") else here)
        found = self._client.get_experiment_by_name(run.project)
        experiment = found.experiment_id if found else self._client.create_experiment(run.project)
        identity = run.identity("mlflow_id")
        earlier = self._client.search_runs([experiment], f"tags.lockstep_id = '{identity}'", max_results=1)
        if earlier:
            self._id = earlier[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        begun = self._client.create_run(experiment, run_name=run.directory.name, tags={"lockstep_id": identity})
        self._id = begun.info.run_id
        params = [Param(name, str(value)[:_LONGEST_SETTING]) for name, value in run.settings.items()]
        for part in _parts(params):
            self._client.log_batch(self._id, params=part, tags=[RunTag("score", run.score)])

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Write one log point."""
        points = [self._metric(tag, value, int(1000 * when), step) for tag, value in values.items()]
        for part in _parts(points):
            self._client.log_batch(self._id, metrics=part)

    def close(self) -> None:
        """Mark the run as ended; a resume opens it again."""
        self._client.set_terminated(self._id)


class CsvFile:
    """metrics.csv: a row for each log point, a column for each tag, cells without a number left empty."""

    def __init__(self, run: LoggedRun) -> None:
        self._path = run.directory / "metrics.csv"
        self._columns = ["step", "time"]
        last = run.resume_step
        rows = [] if last is None else [row for row in self._rows() if int(row["step"]) <= last]
        self._rewrite(rows)

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Append one log point; a tag that was never there before gets a column, for which the file is rewritten."""
        if not set(values) <= set(self._columns):
            rows = self._rows()
            self._columns += [tag for tag in values if tag not in self._columns]
            self._rewrite(rows)
        with open_to_append(self._path) as file:
            file.write(self._lines([{"step": step, "time": round(when, 3), **values}]))

    def close(self) -> None:
        """Nothing is left to do: every row is written at once."""

    def _rows(self) -> list[dict[str, str]]:
        """The rows so far; one that was cut off by a kill is left out."""
        if not self._path.exists():
            return []
        text, _, _ = read_regular(self._path, _LARGEST_CSV).decode().rpartition("\n")
        reader = csv.DictReader(io.StringIO(text))
        rows = [row for row in reader if (row.get("step") or "").isdecimal() and None not in row]
        self._columns += [tag for tag in reader.fieldnames or () if tag not in self._columns]
        return rows

    def _rewrite(self, rows: Iterable[Mapping[str, Any]]) -> None:
        head = dict(zip(self._columns, self._columns, strict=True))
        write_atomically(self._path, self._lines([head, *rows]))

    def _lines(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


def _parts(items: list[Any]) -> list[list[Any]]:
    return [items[first : first + _AT_ONCE] for first in range(0, len(items), _AT_ONCE)]


def _pass_over_tensorboard(args: threading.ExceptHookArgs) -> None:
    """A `threading.excepthook` that ignores TensorBoard's own thread.

    Its errors come back from the next call of the writer, and `Background` reports them once, without a traceback.
    """
    if not type(args.thread).__module__.startswith("tensorboard."):
        threading.__excepthook__(args)
