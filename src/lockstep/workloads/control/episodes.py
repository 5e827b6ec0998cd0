"""Episodes on disk: a directory of safetensors files, each with whole episodes one after the other.

A file has `obs` (rows, O), `action` (rows, A), `reward` (rows,), `terminated` (rows,), and for each episode `task` and
`length`. An episode of T steps has T + 1 rows: row 0 holds the first observation (its action and reward are padding),
every other row an action and its outcome. The header lists the task names that the numbers in `task` index.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.recorded import Episode
from lockstep.errors import UserError
from lockstep.storage.disk import write_atomically
from lockstep.storage.tensor_file import read_header
from lockstep.untrusted import open_regular
from lockstep.workloads.control.names import TaskFacts

FORMAT = "lockstep-episodes-1"
_MOST_LENGTHS = 64 << 20
"""Most bytes that a file's `length` column may take, so that a damaged header cannot exhaust the memory."""
_ROWS = 250_000
"""Approximate rows per file: some tens of megabytes."""
# safetensors' names of the types.
_COLUMNS = {"obs": "F32", "action": "F32", "reward": "F32", "terminated": "BOOL", "task": "I64", "length": "I64"}
_DIMENSIONS = {"obs": 2, "action": 2, "reward": 1, "terminated": 1, "task": 1, "length": 1}
_NAME = re.compile(r"episodes-([0-9]+)\.safetensors")


class EpisodeWriter:
    """Writes episodes to a directory, file by file; files already there are kept."""

    def __init__(self, folder: Path, tasks: tuple[str, ...]) -> None:
        self._folder, self._tasks = folder, tasks
        self._pending: list[Episode] = []
        self._rows = 0
        self.count = 0
        """Episodes written so far."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot create the directory ({error.strerror or error})") from error

    def add(self, episode: Episode) -> None:
        """Queue an episode; writes a file whenever enough rows are queued."""
        self._pending.append(episode)
        self._rows += len(episode.observation)
        if self._rows >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the queued episodes as one file."""
        if not self._pending:
            return
        tensors = _concatenated(self._pending)
        about = {"format": FORMAT, "tasks": json.dumps(self._tasks)}
        path = self._folder / _free_name(self._folder)
        # Atomically: an interrupted recording leaves whole files only, which can be used.
        try:
            write_atomically(path, safetensors.torch.save(tensors, about))
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
        self.count += len(self._pending)
        self._pending.clear()
        self._rows = 0


def _concatenated(episodes: list[Episode]) -> dict[str, Tensor]:
    # T steps become T + 1 rows: a row of zeros pads the start, so that all columns have as many rows as `obs`.
    def padded(parts: list[Tensor]) -> Tensor:
        return torch.cat([torch.cat((torch.zeros_like(part[:1]), part)) for part in parts])

    return {
        "obs": torch.cat([episode.observation for episode in episodes]),
        "action": padded([episode.action for episode in episodes]),
        "reward": padded([episode.reward for episode in episodes]),
        "terminated": padded([episode.terminated for episode in episodes]),
        "task": torch.tensor([episode.task for episode in episodes]),
        "length": torch.tensor([len(episode.action) for episode in episodes]),
    }


def _free_name(folder: Path) -> str:
    # After the highest number and not in a gap, so that files stay in the order of recording.
    numbers = [int(name[1]) for path in folder.iterdir() if (name := _NAME.fullmatch(path.name))]
    return f"episodes-{max(numbers, default=-1) + 1:05}.safetensors"


@dataclass(frozen=True)
class _File:
    path: Path
    task: tuple[int, ...]
    """Task of each episode, as an index into the reader's tasks."""
    start: tuple[int, ...]
    """First row of each episode, then the row after the last one's end."""


class EpisodeFiles:
    """A directory of episodes, read for a run on given tasks. Opening it reads headers, lengths and tasks only."""

    def __init__(self, folder: Path, facts: TaskFacts) -> None:
        """Raises UserError if there are no files or if they do not match these tasks."""
        self._facts = facts
        self._number = {task: number for number, task in enumerate(facts.tasks)}
        paths = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
        if not paths:
            raise UserError(
                f"{folder}: no episode files (*.safetensors) there; `lockstep record` writes them, from a run or from "
                "the public chunks (.pt)"
            )
        self._files = [self._opened(path) for path in paths]
        self._maps: dict[int, Mapping[str, Tensor]] = {}
        # Files are sorted by name, so that every rank numbers the episodes in the same way.
        self._where = [(file, i) for file in self._files for i in range(len(file.task))]

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self._where)

    @property
    def steps(self) -> int:
        """Steps of all episodes together; each has one row more than steps."""
        return sum(file.start[-1] - len(file.task) for file in self._files)

    def lengths(self) -> list[int]:
        """Steps of each episode."""
        return [file.start[i + 1] - file.start[i] - 1 for file, i in self._where]

    def digest(self) -> str:
        """Fingerprint of the data: file names, sizes and headers. The contents, often gigabytes, are not hashed."""
        files = [[f.path.name, f.path.stat().st_size, f.task, f.start] for f in self._files]
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]

    def episodes(self, numbers: Iterable[int]) -> Iterator[Episode]:
        """Yield the episodes with these numbers, in the given order, zero-padded to the largest task's sizes."""
        # One file is held at a time: consecutive numbers mostly lie in the same file.
        columns: Mapping[str, Tensor] = {}
        loaded: Path | None = None
        for number in numbers:
            file, i = self._where[number]
            if file.path != loaded:
                loaded, columns = file.path, safetensors.torch.load_file(file.path)
            yield self._episode(file, i, columns)

    def read(self, episode: Tensor, step: Tensor, into: Mapping[str, Tensor]) -> None:
        """Fill tensors with sequences, as `RecordedEpisodes.read` says; zero-padded like `episodes`."""
        numbers, row = self._index[0, episode], self._index[1, episode] + step
        later = torch.arange(len(into["observation"]))[:, None]
        # File by file, so that one gather reads all sequences of a file.
        files, counts = torch.unique(numbers, return_counts=True)
        for number, chosen in zip(files.tolist(), numbers.argsort().split(counts.tolist()), strict=True):
            columns, rows = self._mapped(number), row[chosen] + later
            found = {"observation": columns["obs"][rows], "action": columns["action"][rows[1:]]}
            found |= {name: columns[name][rows[1:]].float() for name in ("reward", "terminated")}
            for name, values in found.items():
                if not bool(torch.isfinite(values).all()):
                    raise UserError(f"{self._files[number].path}: has values that are not finite; remove this file")
                target = into[name]
                # Tasks have observations and actions of different widths.
                target[:, chosen] = values if values.dim() == 2 else _wide(values, target.shape[-1])
        if "task" in into:
            into["task"].copy_(self._index[2, episode])

    @cached_property
    def _index(self) -> Tensor:
        """(3, episodes) each one's file, its first row there, and its task."""
        numbers = {file.path: number for number, file in enumerate(self._files)}
        return torch.tensor([(numbers[file.path], file.start[i], file.task[i]) for file, i in self._where]).T

    def _mapped(self, number: int) -> Mapping[str, Tensor]:
        """The columns of a file, mapped into memory: only rows that are used are read."""
        if number not in self._maps:
            self._maps[number] = safetensors.torch.load_file(self._files[number].path)
        return self._maps[number]

    def _episode(self, file: _File, i: int, columns: Mapping[str, Tensor]) -> Episode:
        rows = slice(file.start[i], file.start[i + 1])
        episode = Episode(
            observation=_wide(columns["obs"][rows], self._facts.obs_dim),
            action=_wide(columns["action"][rows][1:], self._facts.action_dim),
            reward=columns["reward"][rows][1:],
            terminated=columns["terminated"][rows][1:],
            task=file.task[i],
        )
        # One NaN would make every weight NaN at its first gradient; better to name the file.
        for part in (episode.observation, episode.action, episode.reward):
            if not bool(torch.isfinite(part).all()):
                raise UserError(f"{file.path}: episode {i} has values that are not finite; remove this file")
        return episode

    def _opened(self, path: Path) -> _File:
        try:
            # The header is checked first, by our own reader: its sizes decide how much may be loaded.
            with open_regular(path, links=True) as header:
                forms, _ = read_header(header)
            if "length" in forms and forms["length"].size > _MOST_LENGTHS:
                raise ValueError("more episodes than are allowed in a file")
            with safe_open(path, "pt") as file:
                about, parts = file.metadata() or {}, {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                if about.get("format") != FORMAT or {n: part.get_dtype() for n, part in parts.items()} != _COLUMNS:
                    raise UserError(f"{path}: not an episode file written by `lockstep record`; remove it")
                shapes = {name: part.get_shape() for name, part in parts.items()}
                lengths, numbers = file.get_tensor("length").tolist(), file.get_tensor("task").tolist()
            tasks = json.loads(about["tasks"])
        except (OSError, SafetensorError, ValueError, KeyError, RecursionError) as error:
            raise UserError(f"{path}: damaged ({error}); record it again, or remove this file") from error
        if problem := _damage(tasks, lengths, shapes):
            raise UserError(f"{path}: damaged ({problem}); record it again, or remove this file")
        # T + 1 rows for T steps.
        start = tuple(accumulate((length + 1 for length in lengths), initial=0))
        return _File(path, tuple(self._belonging(path, tasks, numbers, shapes)), start)

    def _belonging(
        self, path: Path, tasks: list[str], numbers: list[int], shapes: Mapping[str, list[int]]
    ) -> Iterator[int]:
        """Yield each episode's task as this run numbers it; UserError if the run lacks the task or its sizes differ."""
        for number in numbers:
            if not 0 <= number < len(tasks) or tasks[number] not in self._number:
                name = tasks[number] if 0 <= number < len(tasks) else f"number {number}"
                own = self._facts.tasks
                trained = own[0] if len(own) == 1 else f"{len(own)} others"
                raise UserError(
                    f"{path}: holds episodes of task {name}, but this run trains on {trained}; use data of its task"
                )
            found, (seen, done) = self._number[tasks[number]], (shapes["obs"][1], shapes["action"][1])
            facts = self._facts
            # Two widths are valid: the task's own, and that of a task set, to which its data is already padded.
            fits = (facts.obs_dims[found], facts.action_dims[found]), (facts.obs_dim, facts.action_dim)
            if (seen, done) not in fits:
                raise UserError(
                    f"{path}: its episodes of {tasks[number]} have observations of {seen} and actions of {done} "
                    f"numbers, not {fits[0][0]} and {fits[0][1]}; remove this file"
                )
            yield found


def _damage(tasks: Any, lengths: Any, shapes: Mapping[str, list[int]]) -> str:
    """What is wrong with a file's structure; empty if nothing is."""
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        return "the tasks in its header are not a list of names"
    for name, dimensions in _DIMENSIONS.items():
        if len(shapes[name]) != dimensions:
            return f"{name} has the shape {shapes[name]}, and must have {dimensions} dimension(s)"
    if shapes["task"] != shapes["length"]:
        return f"it has {shapes['length'][0]} episode lengths but {shapes['task'][0]} task numbers"
    if min(lengths, default=1) < 1:
        return f"an episode has {min(lengths)} steps, and must have at least 1"
    rows = sum(lengths) + len(lengths)
    if not all(shapes[name][0] == rows for name in ("obs", "action", "reward", "terminated")):
        return f"its episodes need {rows} rows, its columns have a different number"
    return ""


def _wide(rows: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, width - rows.shape[-1]))
