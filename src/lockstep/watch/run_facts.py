"""What a run's small files say: state, settings, best score, events, checkpoints. Every file may be damaged."""

import contextlib
import time
from pathlib import Path
from typing import Any

from lockstep.config.run_settings import FREE_TO_CHANGE
from lockstep.config.yaml_text import read_text
from lockstep.errors import LockstepError, UserError
from lockstep.storage import checkpoint_retention, manifest, run_events
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_events import Event
from lockstep.storage.run_summary import RunSummary, summary
from lockstep.untrusted import is_counter, is_file, read_json
from lockstep.watch import limits
from lockstep.watch.columns import Columns

SEED = "seed"
SKIPPED = "train/skipped_updates"
# Seconds for which ranks that died may take to be back, before the run counts as stopped.
_RESTARTING = 180.0
# Seconds after which the sizes of a checkpoint's files are compared again.
_INSPECT_AGAIN = 30.0
_SMALL = 1 << 20
_MOST_SHOWN = 200


class RunFiles:
    """The small files of one run, read again when `refresh` finds that they have changed."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.settings: dict[str, str] = {}
        self.workload = ""
        self.ranks = 0
        self.device = ""
        self.events: list[Event] = []
        self.summary: RunSummary | None = None
        """None once the run is gone."""
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._verified: dict[tuple[str, float], list[str]] = {}
        """Checkpoints by name and age that were hashed, and what was wrong with them."""
        self._inspected: dict[tuple[str, float], tuple[float, int | None, list[str]]] = {}
        """Those whose sizes were compared: when, their step, and what was wrong."""

    def refresh(self) -> None:
        """Read what has changed; a run that has vanished has no summary any more."""
        if not is_file(self.directory.path / manifest.CONFIG):
            self.summary = None
            return
        # Of a finished run its status says all. Otherwise a process may take or leave the lock without a word.
        changed = self._changed("status.json")
        if changed or self.summary is None or self.summary.state != "finished":
            self.summary = summary(self.directory)
        for name, read in (
            ("config.yaml", self._read_settings),
            ("system.json", self._read_system),
            (run_events.EVENTS, self._read_events),
        ):
            if self._changed(name):
                read()

    def _changed(self, name: str) -> bool:
        try:
            found = (self.directory.path / name).lstat()
        except OSError:
            return self._seen.pop(name, None) is not None
        # The inode too: these files are replaced as a whole, perhaps twice within a tick of the clock.
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        changed = self._seen.get(name) != mark
        self._seen[name] = mark
        return changed

    def _read_settings(self) -> None:
        try:
            self.workload, text = self.directory.read_config()
            leaves = read_text(text, "config.yaml")
        except UserError:
            self.settings = {}
            return
        self.settings = {leaf.path[-1]: (leaf.text or "")[:_MOST_SHOWN] for leaf in leaves}

    def _read_system(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            match read_json(self.directory.path / "system.json", _SMALL):
                case {"world": {"size": size, "device": str(device)}} if is_counter(size, 1 << 20):
                    self.ranks, self.device = size, device[:_MOST_SHOWN]

    def _read_events(self) -> None:
        self.events = run_events.read(self.directory.path)

    def experiment(self, *, any_seed: bool = False) -> tuple[Any, ...]:
        """What two runs have in common if they are the same experiment, on whatever devices."""
        free = FREE_TO_CHANGE | ({SEED} if any_seed else set())
        return (self.workload, *sorted((name, value) for name, value in self.settings.items() if name not in free))

    def state(self) -> tuple[str, str]:
        """One of running, restarting, finished, stopped, failed, unreadable, gone; and why, as far as that is known."""
        if self.summary is None:
            return "gone", "its directory was moved or deleted"
        ends = [event for event in self.events if event.kind not in ("checkpoint", "warning")]
        last = ends[-1] if ends else None
        if self.summary.state != "stopped" or last is None:
            return self.summary.state, ""
        if last.kind == "restart" and time.time() - last.time < _RESTARTING:
            return "restarting", last.text
        if last.kind in ("started", "resumed", "restart"):
            return "stopped", "its processes ended without a word: killed, or the machine went down"
        return ("failed" if last.kind == "failed" else "stopped"), last.text

    def marks(self) -> tuple[Any, ...]:
        """What of it a list of runs shows and may change; not the seconds, which always do."""
        known = self.summary
        return (*self.state(), len(self.events), *((known.step, known.best, known.updated) if known else ()))

    def best(self) -> dict[str, Any] | None:
        """The best evaluation: its value, the metric it is of, and whether lower is better."""
        known = self.summary
        if known is None or known.best is None:
            return None
        return {"value": known.best, "name": known.score_name or "score", "lower": known.lower_is_better}

    def checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints on disk, best/ and final/, each with what is wrong with it; contents are not hashed."""
        path = self.directory.path
        try:
            stored = checkpoint_retention.steps_on_disk(path)
        except (LockstepError, OSError):
            stored = []
        stored += [path / name for name in checkpoint_retention.WEIGHTS if (path / name).is_dir()]
        return [self._checkpoint(folder) for folder in stored[-_MOST_SHOWN:]]

    def _checkpoint(self, folder: Path) -> dict[str, Any]:
        name = folder.relative_to(self.directory.path).as_posix()
        mark = (name, _modified(folder))
        now, known = time.monotonic(), self._inspected.get(mark)
        # Reading the manifests of all checkpoints takes milliseconds, and a page asks at every log point.
        if known is None or now - known[0] > _INSPECT_AGAIN:
            known = self._inspected[mark] = (now, _step(folder), _problems(folder, contents=False))
        _, step, problems = known
        hashed = self._verified.get(mark)
        problems = problems or hashed or []
        state = "damaged" if problems else "verified" if hashed is not None else "sizes match"
        return {"name": name, "step": step, "state": state, "problems": problems[:3]}

    def verify(self, name: str) -> bool:
        """Hash every file of a checkpoint that is on disk; False if there is none of this name."""
        names = [entry["name"] for entry in self.checkpoints()]
        if name not in names:
            return False
        folder = self.directory.path / name
        modified = _modified(folder)
        self._verified[(name, modified)] = _problems(folder, contents=True)
        return True


def timeline(facts: RunFiles, columns: Columns) -> list[dict[str, Any]]:
    """Everything that happened, oldest first; updates that were skipped stand in the log."""
    happened: list[dict[str, Any]] = [
        {"time": event.time, "kind": event.kind, "text": event.text, "step": event.step} for event in facts.events
    ]
    for number in columns.where_positive(SKIPPED)[-_MOST_SHOWN:]:
        text = f"{columns.tags[SKIPPED][number]:g} skipped: a gradient was not finite"
        when, step = columns.times[number], int(columns.steps[number])
        happened.append({"time": when, "kind": "skipped", "text": text, "step": step})
    return sorted(happened, key=lambda entry: entry["time"])[-_MOST_SHOWN:]


def ranks(columns: Columns) -> list[dict[str, Any]]:
    """Each rank's speed, time split, processor and memory, as the newest log points have them."""
    names = {"fps": "time/fps_rank", "cpu": "system/cpu_percent_rank", "memory": "system/memory_gb_rank"}
    names |= {"gpu_memory": "system/gpu_memory_gb_rank"}
    return [
        {"rank": rank, "split": limits.shares(columns, rank)}
        | {name: columns.latest(f"{tag}{rank}", limits.POINTS) for name, tag in names.items()}
        for rank in range(min(limits.ranks_of(columns), _MOST_SHOWN))
    ]


def machine(columns: Columns) -> dict[str, float]:
    """The newest numbers of the machine of rank 0: cores, memory, each GPU."""
    tags = [tag for tag in columns.tags if tag.startswith("system/") and "_rank" not in tag]
    found = {tag.removeprefix("system/"): columns.latest(tag, limits.POINTS) for tag in tags[:_MOST_SHOWN]}
    return {name: value for name, value in found.items() if value is not None}


def _problems(folder: Path, *, contents: bool) -> list[str]:
    try:
        return manifest.inspect(folder, contents=contents)
    except (OSError, LockstepError) as error:  # removed while it was looked at
        return [str(error)[:_MOST_SHOWN]]


def _modified(folder: Path) -> float:
    try:
        return (folder / manifest.MANIFEST).lstat().st_mtime
    except OSError:
        return 0.0


def _step(folder: Path) -> int | None:
    step = manifest.step_of(folder.name)
    if step is not None:
        return step
    try:
        return manifest.read_manifest(folder).step
    except (manifest.Damaged, OSError):
        return None
