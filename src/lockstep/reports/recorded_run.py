"""What is on disk of a run, read once: settings, curves, evaluation, stored weights and the machine.

A run directory may be damaged, or somebody else's: what cannot be read is left out and noted in `problems`, sizes are
limited, and names that Lockstep would not write are dropped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.config.values import shown
from lockstep.config.yaml_text import read_text
from lockstep.errors import LockstepError, UserError
from lockstep.storage import checkpoint_retention, run_events
from lockstep.storage.manifest import CONFIG, MODEL, Damaged, Manifest, inspect, read_manifest
from lockstep.storage.run_directory import LARGEST_VALUE, LONGEST_LINE, METRICS, WEIGHTS_HASH, RunDirectory
from lockstep.storage.run_events import Event
from lockstep.storage.run_summary import RunSummary, summary
from lockstep.untrusted import LATEST, is_counter, is_number, parse_json, read_json, whole_lines

MOST_POINTS = 200_000
"""Log points that are read of a run; the rest of a longer log is left out."""
_MOST_TAGS = 500
_MOST_CHECKPOINTS = 1000
_MOST_EVENTS = 1000
# Bytes. The lists of a very large evaluation are the largest content of these files.
_LARGEST_EVALUATION = 64 << 20
_LARGEST_SYSTEM = 1 << 20
_MOST_SETTINGS = 500
_TAG = re.compile(r"[A-Za-z0-9_][\w./:@-]{0,99}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{8,128}")
_SETTING = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclass(frozen=True)
class Curve:
    """One metric over the steps of a run; steps increase."""

    steps: list[int]
    values: list[float]


@dataclass(frozen=True)
class StoredWeights:
    """A checkpoint, or the weights in best/ or final/."""

    name: str
    step: int
    sha256: str
    """Of the file of weights, as the manifest says; equal if and only if every bit of the weights is."""
    ranks: int
    """Ranks that the run had when it was written; 0 = not recorded (best/ and final/)."""
    problems: tuple[str, ...]
    """What `lockstep verify` finds wrong with it."""


@dataclass(frozen=True)
class RecordedRun:
    """A run as its directory tells it."""

    summary: RunSummary
    path: Path
    settings: dict[str, str]
    """Every setting as text, in the file's order."""
    curves: dict[str, Curve]
    seconds: Curve
    """When each log point was written, in seconds since 1970."""
    fingerprints: dict[int, str]
    """The hash of the weights by step, where the run logged it."""
    evaluation: dict[str, Any]
    stored: tuple[StoredWeights, ...]
    system: dict[str, Any]
    events: tuple[Event, ...]
    """What happened to it, the newest last."""
    verified: bool
    """Whether the files of `stored` were hashed; otherwise only their sizes were compared."""
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.summary.name

    @property
    def ranks(self) -> int:
        """Ranks that trained it, or train it; 0 = not recorded."""
        world = self.system.get("world")
        size = world.get("size") if isinstance(world, dict) else None
        return self.summary.ranks or (size if is_counter(size) else 0)

    @property
    def duration(self) -> float:
        """Seconds from the first to the last log point, pauses included."""
        return self.seconds.values[-1] - self.seconds.values[0] if self.seconds.values else 0.0


def read_run(run: RunDirectory, *, verify: bool = True) -> RecordedRun:
    """Everything that the directory of a run has to tell; `verify`: hash the stored files."""
    problems: list[str] = []
    log = _Log()
    log.read(run.path / METRICS, problems)
    return RecordedRun(
        summary(run),
        run.path,
        _settings(run),
        log.curves,
        log.seconds,
        log.fingerprints,
        _object(run.path / "evaluation.json", _LARGEST_EVALUATION, problems),
        tuple(_stored(run.path, verify, problems)),
        _object(run.path / "system.json", _LARGEST_SYSTEM, problems),
        tuple(run_events.read(run.path)[-_MOST_EVENTS:]),
        verify,
        problems,
    )


def _settings(run: RunDirectory) -> dict[str, str]:
    _, text = run.read_config()
    leaves = read_text(text, str(run.path / CONFIG))
    named = [(leaf.path[-1], "none" if leaf.text is None else leaf.text) for leaf in leaves]
    return {name: text for name, text in named[:_MOST_SETTINGS] if _SETTING.fullmatch(name)}


class _Log:
    """Collects the columns of metrics.jsonl."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.seconds = Curve([], [])
        self.fingerprints: dict[int, str] = {}

    def read(self, path: Path, problems: list[str]) -> None:
        """Read the log points; damaged lines are counted and left out."""
        damaged = count = 0
        try:
            for count, line in enumerate(whole_lines(path, LONGEST_LINE)):
                if count == MOST_POINTS:
                    problems.append(f"{METRICS}: longer than {MOST_POINTS:,} log points; the rest is left out")
                    break
                damaged += not self._take(line)
        except FileNotFoundError:
            problems.append(f"{METRICS}: missing; there are no curves")
        except OSError as error:
            problems.append(f"{METRICS}: cannot be read ({error.strerror})")
        if damaged:
            problems.append(f"{METRICS}: {damaged:,} damaged line(s) left out")

    def _take(self, line: bytes) -> bool:
        try:
            point = parse_json(line)
        except ValueError:
            return False
        if not isinstance(point, dict) or not is_counter(step := point.pop("step", None)):
            return False
        # Steps increase in a log; one that goes back would draw a curve over itself.
        if self.seconds.steps and step <= self.seconds.steps[-1]:
            return False
        when = point.pop("time", None)
        if not is_number(when, LATEST):
            return False
        self.seconds.steps.append(step)
        self.seconds.values.append(float(when))
        fingerprint = point.pop(WEIGHTS_HASH, None)
        if isinstance(fingerprint, str) and _HASH.fullmatch(fingerprint):
            self.fingerprints[step] = fingerprint
        for tag, value in point.items():
            self._add(tag, step, value)
        return True

    def _add(self, tag: str, step: int, value: Any) -> None:
        if not is_number(value, LARGEST_VALUE) or not _TAG.fullmatch(tag):
            return  # a null: the value was not finite
        if tag not in self.curves:
            if len(self.curves) == _MOST_TAGS:
                return
            self.curves[tag] = Curve([], [])
        self.curves[tag].steps.append(step)
        self.curves[tag].values.append(float(value))


def _stored(root: Path, verify: bool, problems: list[str]) -> Iterator[StoredWeights]:
    try:
        checkpoints = checkpoint_retention.steps_on_disk(root)[-_MOST_CHECKPOINTS:]
    except (LockstepError, OSError) as error:
        problems.append(str(error))
        checkpoints = []
    for path in [*checkpoints, *(root / name for name in checkpoint_retention.WEIGHTS)]:
        if path.is_symlink() or not path.is_dir():
            continue
        try:
            found = tuple(inspect(path, contents=verify))
        except OSError as error:  # removed while it was looked at
            found = (f"cannot be read ({error.strerror})",)
        manifest = _manifest(path)
        name = path.relative_to(root).as_posix()
        if manifest is None:
            yield StoredWeights(name, 0, "", 0, found)
        else:
            yield StoredWeights(name, manifest.step, manifest.files[MODEL].sha256, manifest.world_size, found)


def _manifest(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except (Damaged, OSError):
        return None


def _object(path: Path, largest: int, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty if there is none."""
    try:
        content = read_json(path, largest)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path.name}: cannot be read ({getattr(error, 'strerror', None) or shown(str(error))})")
        return {}
    return content if isinstance(content, dict) else {}


def numbers_in(values: Any) -> list[float]:
    """The numbers of a parsed list; empty if it is no list."""
    return [float(value) for value in values if is_number(value, LARGEST_VALUE)] if isinstance(values, list) else []


def find_runs(names: list[str], runs_dir: Path, *, verify: bool = True) -> list[RecordedRun]:
    """Read the runs that a user named, each once."""
    found = {run.path.resolve(): run for run in (RunDirectory.find(name, runs_dir) for name in names)}
    if len(found) < len(names):
        raise UserError(f"{', '.join(map(shown, names))}: a run is named twice; name each once")
    return [read_run(run, verify=verify) for run in found.values()]
