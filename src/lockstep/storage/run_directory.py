"""The run directory: its name, its small files, and who may write to it. Reading a run needs no torch."""

import json
import logging
import math
import os
import platform
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.config.fields import nearest
from lockstep.config.run_settings import RUN_NAME
from lockstep.errors import UserError
from lockstep.storage import run_lock
from lockstep.storage.disk import make_directory, temporary_name, write_atomically, write_durably
from lockstep.storage.run_events import EVENTS, Kind, note
from lockstep.storage.run_status import RunFacts, State, Status, read_status
from lockstep.untrusted import is_file, is_folder, parse_json, read_json, read_regular, whole_lines
from lockstep.version import __version__

if TYPE_CHECKING:
    from lockstep.distributed.world import World

# Everything that a run may write to inside its directory.
_FOLDERS = ("checkpoints", "best", "final", "tensorboard", "export", "wandb", "aside")
METRICS = "metrics.jsonl"
WEIGHTS_HASH = "weights_sha256"
"""The one value of a log point that is no number: the hash of the weights at its step. Not every point has it."""
LONGEST_LINE = 1 << 20
"""Bytes; a longer line of metrics.jsonl is not a log point."""
LARGEST_VALUE = 1e100
"""Larger ones of a log or an evaluation are left out: means and variances of them would overflow."""
_FILES = ("config.yaml", "status.json", "system.json", METRICS, "evaluation.json", "lock.json", EVENTS)
_FILES_OF_LOGGERS = ("metrics.csv", "wandb_id", "trackio_id", "mlflow_id")
# Bytes. Larger config.yaml and status.json files are not ours, and not read.
_SMALL = 1 << 20
_NAME = re.compile(RUN_NAME)
_WORKLOAD_LINE = "# workload: "
_log = logging.getLogger(__name__)


class RunDirectory:
    """The files of one run. Methods that write are called by rank 0 only."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.name = self.path.name
        # Since `write_config`, which begins a run or continues it; None in a process that only reads.
        self._began: float | None = None
        self._seconds_before = 0.0
        # The training and the thread that writes checkpoints read, change and write status.json.
        self._status_lock = threading.Lock()
        # The best score that this process has noted; not one from before it, which may have been set aside.
        self._best = -math.inf

    @classmethod
    def named(cls, runs_dir: Path, name: str) -> "RunDirectory":
        """The run of this name, whether it exists or not; UserError for a name that could lead out of runs_dir."""
        if not _NAME.fullmatch(name):
            raise UserError(
                f"run name {name[:60]!r}: not a valid folder name on every system; allowed: up to 100 letters, digits "
                "and . _ -, starting with a letter or digit, not a Windows device name such as CON"
            )
        run = cls(Path(runs_dir) / name)
        run._refuse_link()
        return run

    @classmethod
    def fresh(cls, runs_dir: Path, stem: str) -> "RunDirectory":
        """A new run of this name, or with a number appended if the name is taken."""
        for name in chain([stem], (f"{stem}-{number}" for number in count(2))):
            try:
                make_directory(Path(runs_dir))
                # mkdir is atomic: of several processes that start at the same time, one gets the name.
                (Path(runs_dir) / name).mkdir()
            except FileExistsError:
                continue
            except OSError:
                pass  # `prepare` fails for the same reason, and tells the user
            return cls.named(runs_dir, name)
        raise AssertionError("unreachable")

    @classmethod
    def find(cls, text: str, runs_dir: Path, others: Sequence[str] = ()) -> "RunDirectory":
        """An existing run by its path, or by its name in runs_dir; `others`: further names to suggest after a typo."""
        candidates = [Path(text)] + ([Path(runs_dir) / text] if _NAME.fullmatch(text) else [])
        for path in candidates:
            if _has_config(path):
                # Resolved, so that `.` and paths with `..` have a proper name.
                return cls.named(path.resolve().parent, path.resolve().name)
        near = nearest(text, [*(path.name for path in run_paths(runs_dir)), *others])
        hint = f"the nearest is {near}" if near else "`lockstep runs` lists all runs"
        raise UserError(f"run {text[:200]!r}: neither a run in {runs_dir} nor a directory with a config.yaml; {hint}")

    @contextmanager
    def locked(self, job: tuple[str, int] | None = None) -> Iterator[run_lock.Lock]:
        """Create the directory and lock it; UserError if it cannot be written or another process holds the lock."""
        self.prepare()
        with run_lock.hold(self.path / "lock.json", job) as lock:
            yield lock

    def prepare(self) -> None:
        """Create the directory and test that it can be written, before anything starts."""
        self._refuse_link()
        self.refuse_foreign()
        try:
            # checkpoints/ is tested too: it may be a mount with permissions of its own.
            for folder in (self.path, self.path / "checkpoints"):
                make_directory(folder)
                _try_out(folder)
        except OSError as error:
            where = error.filename or self.path
            raise UserError(
                f"{self.path}: cannot be written to ({error.strerror}: {where}); make room there, "
                "change its permissions or choose another --runs-dir"
            ) from error

    @contextmanager
    def prepared(self, keeps: bool) -> Iterator[None]:
        """As `prepare`; a new directory is removed if no run started in it, unless `keeps`: others may be using it."""
        # A file in its place is no folder to look into; `prepare` refuses it.
        is_new = not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))
        self.prepare()
        try:
            yield
        finally:
            # Another process may have started a run here meanwhile; it takes the lock before it writes config.yaml.
            unused = not _has_config(self.path) and not run_lock.is_held(self.path / "lock.json")
            if is_new and not keeps and unused:
                shutil.rmtree(self.path, ignore_errors=True)

    def _refuse_link(self) -> None:
        # The second test finds what is_symlink does not, such as `..` at the end of the path.
        if self.path.is_symlink() or self.path.resolve().parent != self.path.parent.resolve():
            raise UserError(f"{self.path}: is a link out of {self.path.parent}; give the directory itself")

    def refuse_foreign(self) -> None:
        """UserError unless everything the run writes to is a folder or a regular file of its own, not a link."""
        for names, is_own, kind in (
            (_FOLDERS, is_folder, "folder"),
            ((*_FILES, *_FILES_OF_LOGGERS), is_file, "regular file"),
        ):
            for path in (self.path / name for name in names):
                # lexists: writing to a dangling link would create its target, outside the run.
                if os.path.lexists(path) and not is_own(path):
                    found = "a link" if path.is_symlink() else f"not a {kind}"
                    raise UserError(
                        f"{path}: is {found}; a run writes to its own directory only: remove it or put a {kind} there"
                    )

    def write_config(self, text: str, workload: str, facts: RunFacts | None = None) -> None:
        """Write config.yaml, whose first line names the workload, and set the status to running."""
        write_atomically(self.path / "config.yaml", f"{_WORKLOAD_LINE}{workload}\n{text}".encode())
        before = self.status()
        self._seconds_before, self._began = before.seconds, time.monotonic()
        self._write_status(replace(before, workload=workload, state="running", facts=facts or before.facts))

    def read_config(self) -> tuple[str, str]:
        """The workload's name and the YAML text of the configuration."""
        path = self.path / "config.yaml"
        try:
            text = read_regular(path, _SMALL).decode()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
        first, _, rest = text.partition("\n")
        if not first.startswith(_WORKLOAD_LINE):
            raise UserError(f"{path}: its first line must name the workload, as in `{_WORKLOAD_LINE}snake`")
        return first.removeprefix(_WORKLOAD_LINE).strip(), rest

    def write_system(self, world: "World") -> None:
        """Write system.json: versions, this host's devices, the world and when it started."""
        write_atomically(self.path / "system.json", json.dumps(_describe_system(world), indent=1).encode())

    def status(self) -> Status:
        """The content of status.json, or an empty status if it cannot be read."""
        try:
            return self.stored_status()
        except (OSError, ValueError):
            return Status()

    def stored_status(self) -> Status:
        """The content of status.json; OSError or ValueError if it cannot be read."""
        return read_status(read_json(self.path / "status.json", _SMALL))

    def write_status(self, state: State, step: int, best_score: float | None = None) -> None:
        """Write the run's progress to status.json; a failed write costs a warning, not the run.

        `best_score` may be older than one that `note_best` has written meanwhile, which then stays.
        """
        with self._status_lock:
            best = max(self._best, -math.inf if best_score is None else best_score)
            # JSON has no infinity, which is the best score before the first evaluation.
            known = best if math.isfinite(best) else None
            self._write_status(replace(self.status(), state=state, step=step, best_score=known))

    def note_best(self, best_score: float) -> None:
        """Write a new best score to status.json; the step stays that of the last checkpoint."""
        with self._status_lock:
            self._best = best_score
            self._write_status(replace(self.status(), best_score=best_score))

    def note_end(self, world: "World", state: State, step: int, best_score: float) -> None:
        """Write how the run ended. May be called by some ranks only, as after an error: rank 0 writes."""
        if world.leads:
            self.write_status(state, step, best_score)

    def note_event(self, world: "World", kind: Kind, text: str, step: int) -> None:
        """Add to the run's events. May be called by some ranks only: rank 0 writes."""
        if world.leads:
            note(self.path, kind, text, step)

    def _write_status(self, status: Status) -> None:
        if self._began is not None:
            status = replace(status, seconds=self._seconds_before + time.monotonic() - self._began)
        status = replace(status, updated=time.time())
        try:
            write_atomically(self.path / "status.json", json.dumps(asdict(status)).encode())
        except FileNotFoundError:
            pass  # the run directory is gone; the lock's own check ends the run and says so
        except OSError as error:
            _log.warning("%s: status not written (%s); training continues", self.path, error.strerror)

    def log_points(self) -> list[dict[str, Any]]:
        """Every log point of metrics.jsonl: step, time and tags, some with WEIGHTS_HASH; empty before the first one."""
        path = self.path / METRICS
        try:
            # A run in progress may be in the middle of writing a line, so only complete ones are read.
            return [parse_json(line) for line in whole_lines(path, LONGEST_LINE)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def run_paths(runs_dir: Path) -> list[Path]:
    """The folders of all runs in a directory, by name."""
    folder = Path(runs_dir)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if _NAME.fullmatch(path.name) and not path.is_symlink() and _has_config(path)]


def _has_config(path: Path) -> bool:
    return is_file(path / "config.yaml")


def _try_out(folder: Path) -> None:
    probe = folder / temporary_name("probe")
    try:
        write_durably(probe, bytes(4096))
    finally:
        probe.unlink(missing_ok=True)


def _describe_system(world: "World") -> dict[str, Any]:
    # Imported here: listing runs must not wait seconds for torch.
    import numpy
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "versions": {
            "lockstep": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "numpy": numpy.__version__,
        },
        "platform": platform.platform(),
        "host": platform.node(),
        "command": sys.argv,
        "devices": {"cpus": os.cpu_count(), "threads_per_rank": torch.get_num_threads(), "gpus": gpus},
        "world": {"size": world.size, "lanes": world.lanes.total, "device": str(world.device)},
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
