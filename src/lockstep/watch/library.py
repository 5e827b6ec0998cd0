"""The runs that a page shows: found again at every look, read on as they grow."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.config.run_settings import PLACES
from lockstep.storage.run_directory import RunDirectory, run_paths
from lockstep.untrusted import is_folder
from lockstep.watch import columns as curves
from lockstep.watch import limits, run_facts
from lockstep.watch.agreement import AgreementFollower, Member
from lockstep.watch.curve_parts import Cursor, View, part
from lockstep.watch.log_follower import LogFollower
from lockstep.watch.run_facts import SEED, RunFiles

MOST_RUNS = 500
"""Runs that are followed at once; of more, those that changed last."""
Curve = tuple[np.ndarray, np.ndarray]
# Seconds of reading at a time.
_MOMENT = 0.1


@dataclass(frozen=True)
class Watched:
    """One run: its small files and its log."""

    facts: RunFiles
    log: LogFollower


class Library:
    """Every run below some folders, or the runs that the user named. Safe to use from several threads."""

    def __init__(self, runs_dir: Path, names: Sequence[str] = ()) -> None:
        """`names`: runs, or folders of runs such as a sweep's; none = all of runs_dir."""
        self._lock = threading.Lock()
        self._watched: dict[str, Watched] = {}
        self._looked = False
        self._overview: dict[str, Any] = {}
        self._overview_of: tuple[Any, ...] | None = None
        self._followers: dict[tuple[Any, ...], AgreementFollower] = {}
        """What was compared of the runs of an experiment, by these runs and the readings of their logs."""
        self._folders: list[Path] = [] if names else [Path(runs_dir)]
        self._single: list[RunDirectory] = []
        for name in names:
            self._name(name, runs_dir)

    def _name(self, name: str, runs_dir: Path) -> None:
        folder = next((path for path in (Path(name), Path(runs_dir) / name) if _holds_runs(path)), None)
        if folder is not None:
            self._folders.append(folder)
        else:
            self._single.append(RunDirectory.find(name, runs_dir))

    def refresh(self) -> bool:
        """Look for new runs, and read their files for a moment; returns whether there is more to read."""
        with self._lock:
            self._look()
            for watched in self._watched.values():
                watched.facts.refresh()
            logs = [watched.log for watched in self._watched.values()]
        # What runs have added is little. Long logs that were never read have a rough picture first, and get the time
        # that is left.
        long = [log for log in logs if log.is_rough]
        long += [log for log in logs if not log.is_rough and self._read_on(log)]
        until = time.monotonic() + _MOMENT
        self._looked = True
        while long and time.monotonic() < until:
            if not self._read_on(long[0]):
                long.pop(0)
        return bool(long)

    def _look(self) -> None:
        """Follow the runs that are there; those that vanished are shown as long as there is room."""
        for key, directory in self._found():
            if key not in self._watched:
                self._watched[key] = Watched(RunFiles(directory), LogFollower(directory.path))
        if len(self._watched) > MOST_RUNS:
            by_age = sorted(self._watched, key=lambda key: _changed(self._watched[key].facts.directory))
            for key in by_age[:-MOST_RUNS]:
                del self._watched[key]

    def _read_on(self, log: LogFollower) -> bool:
        # Released between two portions, so that a page does not wait for a long log.
        with self._lock:
            return log.read_on()

    def _found(self) -> Iterator[tuple[str, RunDirectory]]:
        """Runs by a key that is unique: the name, or with its folder's where that is one of several."""
        found = [(run.name, run) for run in self._single]
        for folder in self._folders:
            found += [(run.name, run) for run in _runs_in(folder)]
            # A sweep keeps its runs in a folder of its own, beside other runs.
            for sweep in _sweeps_in(folder):
                found += [(f"{sweep.name}/{run.name}", run) for run in _runs_in(sweep)]
        if len(found) > MOST_RUNS:
            found = sorted(found, key=lambda pair: _changed(pair[1]))[-MOST_RUNS:]
        taken: set[str] = set()
        for key, run in found:
            unique = key if key not in taken else f"{run.path.parent.name}/{run.name}"
            if unique not in taken:
                taken.add(unique)
                yield unique, run

    def overview(self) -> dict[str, Any]:
        """Every run in a few lines, settings that differ, every tag, how far runs agree; empty before a first look."""
        with self._lock:
            # Most looks find nothing new.
            marks = tuple((key, run.log.version, *run.facts.marks()) for key, run in self._watched.items())
            if self._looked and marks != self._overview_of:
                self._overview, self._overview_of = self._new_overview(), marks
            return self._overview

    def _new_overview(self) -> dict[str, Any]:
        shown = self._watched
        differing = _differing(shown)
        tags = {tag for watched in shown.values() for tag in watched.log.columns.tags}
        return {
            "runs": [_row(key, watched, differing) for key, watched in shown.items()],
            "settings": differing,
            "tags": sorted(tags),
            "experiments": self._experiments(),
        }

    def _experiments(self) -> list[dict[str, Any]]:
        """Runs of one experiment that can be compared, on whatever numbers of ranks."""
        found, used = [], {}
        for members in _comparable(self._watched):
            logs = [self._watched[member.name].log for member in members]
            # A log that is read from its start may be another one: everything is compared again.
            mark = tuple((member.name, log.reading) for member, log in zip(members, logs, strict=True))
            used[mark] = self._followers.get(mark) or AgreementFollower()
            about = self._watched[members[0].name].facts
            known = about.summary.sync if about.summary is not None else ""
            sync = known or about.settings.get("sync", "")
            agreement = asdict(used[mark].look(members, sync))
            found.append(agreement | {"workload": about.workload, "sync": sync, SEED: about.settings.get(SEED)})
        self._followers = used
        return found

    def details(self, key: str) -> dict[str, Any] | None:
        """Everything about one run; None if there is no such run."""
        with self._lock:
            watched = self._watched.get(key)
            if watched is None:
                return None
            facts, columns = watched.facts, watched.log.columns
            return {
                "id": key,
                "path": str(facts.directory.path),
                "limit": limits.limit_of(columns),
                "split": limits.shares(columns),
                "ranks": run_facts.ranks(columns),
                "machine": run_facts.machine(columns),
                "timeline": run_facts.timeline(facts, columns),
                "checkpoints": facts.checkpoints(),
                "settings": facts.settings,
            }

    def path_of(self, key: str) -> Path | None:
        """The directory of a run; None if there is no such run."""
        watched = self._watched.get(key)
        return None if watched is None else watched.facts.directory.path

    def verify(self, key: str, checkpoint: str) -> bool:
        """Hash the files of a checkpoint; False if there is no such run or checkpoint."""
        watched = self._watched.get(key)
        return watched is not None and watched.facts.verify(checkpoint)

    def series(self, cursors: Mapping[str, Cursor | None], tag: str, view: View) -> list[dict[str, Any]]:
        """What a chart lacks of one curve of each run; `cursors`: the runs, and what it has of each."""
        with self._lock:
            shown = [(key, known, self._watched[key].log) for key, known in cursors.items() if key in self._watched]
            return [{"id": key} | part(log.columns, log.reading, tag, view, known) for key, known, log in shown]

    def bands(self, keys: Iterable[str], tag: str, view: View) -> list[dict[str, Any]]:
        """Mean, lowest and highest over the runs that differ in the seed alone."""
        groups: dict[Any, list[str]] = {}
        parts: dict[str, Curve] = {}
        with self._lock:
            for key, watched in ((key, self._watched[key]) for key in keys if key in self._watched):
                parts[key] = curves.cut(*watched.log.columns.curve(tag, view.axis, view.smooth), view.span)
                groups.setdefault(watched.facts.experiment(any_seed=True), []).append(key)
        return [
            {"id": members[0], "runs": members} | curves.band([parts[key] for key in members], view.points)
            for members in groups.values()
        ]


def _changed(run: RunDirectory) -> float:
    """When a run has last begun or told of its progress; 0 if it is gone."""
    times = [0.0]
    for name in ("status.json", "config.yaml"):
        with contextlib.suppress(OSError):
            times.append((run.path / name).lstat().st_mtime)
    return max(times)


def _holds_runs(path: Path) -> bool:
    return is_folder(path) and not (path / "config.yaml").exists() and any(True for _ in _runs_in(path))


def _runs_in(folder: Path) -> list[RunDirectory]:
    try:
        return [RunDirectory(path) for path in run_paths(folder)]
    except OSError:  # it vanished, or one of its runs did while it was listed
        return []


def _sweeps_in(folder: Path) -> list[Path]:
    try:
        entries = sorted(path for path in folder.iterdir() if is_folder(path) and not path.name.startswith("."))
    except OSError:
        return []
    return [path for path in entries if not (path / "config.yaml").exists()]


def _differing(shown: dict[str, Watched]) -> list[str]:
    """The settings that are not the same in all runs of a workload: those of others are no choice."""
    of_workload: dict[str, list[dict[str, str]]] = {}
    for watched in shown.values():
        of_workload.setdefault(watched.facts.workload, []).append(watched.facts.settings)
    differing: dict[str, None] = {}
    for runs in of_workload.values():
        every = [settings for settings in runs if settings]
        names = dict.fromkeys(name for settings in every for name in settings if name not in PLACES)
        differing |= {name: None for name in names if len({settings.get(name) for settings in every}) > 1}
    return list(differing)


def _row(key: str, watched: Watched, differing: Sequence[str]) -> dict[str, Any]:
    facts, columns = watched.facts, watched.log.columns
    state, why = facts.state()
    known = facts.summary
    step = int(columns.steps[-1]) if len(columns) else known.step if known else 0
    total = known.total_steps if known else 0
    hashes = columns.hashes
    return {
        "id": key,
        "workload": facts.workload,
        "state": state,
        "why": why,
        "step": step,
        "total": total or None,
        "progress": min(step / total, 1.0) if total else None,
        "best": facts.best(),
        "ranks": limits.ranks_of(columns) or facts.ranks,
        "device": facts.device,
        "speed": columns.latest("time/global_fps", 5),
        "updated": known.updated if known else 0.0,
        "settings": {name: facts.settings[name] for name in differing if facts.settings.get(name)},
        "hash": next(reversed(hashes.values()))[:10] if hashes else None,
        "seconds": columns.times[-1] - columns.times[0] if len(columns) else 0.0,
        "points": len(columns),
        "version": watched.log.version,
        "events": len(facts.events),
    }


def _comparable(shown: dict[str, Watched]) -> Iterator[list[Member]]:
    """The runs of each experiment that was run more than once, in the order of their numbers of ranks."""
    groups: dict[Any, list[Member]] = {}
    for key, watched in shown.items():
        columns, facts = watched.log.columns, watched.facts
        if facts.settings and columns.hashes:
            member = Member(key, limits.ranks_of(columns) or facts.ranks, columns.hashes)
            groups.setdefault(facts.experiment(), []).append(member)
    for members in groups.values():
        if len(members) > 1:
            yield sorted(members, key=lambda member: (member.ranks, member.name))
