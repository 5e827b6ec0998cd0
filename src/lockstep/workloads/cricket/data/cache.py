"""Tables on disk: safetensors for numbers and JSON for text, in a directory that is created atomically."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lockstep.storage.disk import replace_directory, temporary_name, write_durably
from lockstep.untrusted import read_regular
from lockstep.workloads.cricket.features.chronicle import Chronicle
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.knowledge import Knowledge
from lockstep.workloads.cricket.features.table import DeliveryTable, Entities, MatchInfo
from lockstep.workloads.cricket.features.tabulate import Learned

FORMAT = 3
"""Increase it with every change of what is stored or how it is computed, so that older caches are rebuilt."""
_TEXT, _KNOWLEDGE, _CHRONICLE = "words.json", "knowledge.safetensors", "chronicle.safetensors"
"""File names: everything that is not a tensor, what was learned from the training matches, and what of it when."""
_KEPT_NARROW = ("runs", "score", "ball", "career")
"""Columns that a table holds in narrow types in memory, too; all others are widened when read."""
_MAX_TEXT = 1 << 30


@dataclass(frozen=True)
class Store:
    """Everything that preparing the data produces."""

    tables: dict[str, DeliveryTable]
    """By part: train, validation, test."""
    index: EntityIndex
    knowledge: Knowledge
    notes: tuple[str, ...]
    """Messages for the user about the source: files that were left out."""
    source: str
    """Digest of the matches and of their split."""
    chronicle: Chronicle | None = None
    """What was known when, if careers count earlier matches only."""

    @property
    def learned(self) -> Learned:
        """What describes matches other than those that were learned from."""
        return Learned(self.index, self.knowledge, (), self.chronicle)

    @property
    def entities(self) -> Entities:
        """Names by id, the unknown one first."""
        unknown = "unknown"
        balls = self.knowledge.counts["striker"].sum(1) + self.knowledge.counts["bowler"].sum(1)
        return Entities(
            (unknown, *self.index.venues.names),
            (unknown, *self.index.teams),
            (unknown, *(name for _, name in self.index.players)),
            tuple(balls.tolist()),
        )


def write_store(
    path: Path,
    learned: Learned,
    notes: tuple[str, ...],
    source: str,
    tables: Iterable[tuple[str, DeliveryTable]],
) -> None:
    """Write a store to a directory, replacing any other. Tables are consumed one by one, to keep one in memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    workspace = path.with_name(temporary_name(path.name))
    workspace.mkdir()
    try:
        text: dict[str, Any] = {"format": FORMAT, "index": learned.index.as_json(), "notes": notes, "source": source}
        text["tables"] = {}
        for part, table in tables:
            save_file({name: _narrow(tensor) for name, tensor in table.tensors().items()}, workspace / _file(part))
            matches = [[match.file, match.date, match.teams, match.venue] for match in table.matches]
            text["tables"][part] = {"names": table.names, "matches": matches, "longest": table.longest}
        _save(learned.everything.tensors(), workspace / _KNOWLEDGE)
        if learned.chronicle is not None:
            _save(learned.chronicle.tensors(), workspace / _CHRONICLE)
        # Sizes detect truncated files: after a crash, the file system may show unwritten data under its final name.
        text["sizes"] = {file.name: file.stat().st_size for file in sorted(workspace.iterdir())}
        write_durably(workspace / _TEXT, json.dumps(text).encode())
        # Written last and renamed at once: a reader sees the old store, none, or the whole new one.
        replace_directory(workspace, path)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def is_whole(path: Path) -> bool:
    """Whether a directory holds a complete store of this format; damaged ones count as absent and are rebuilt."""
    try:
        text = json.loads(read_regular(path / _TEXT, _MAX_TEXT))
        return text["format"] == FORMAT and all(
            (path / name).stat().st_size == size for name, size in text["sizes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read_store(path: Path) -> Store:
    """Read the store in a directory; ValueError if it is not one."""
    try:
        text = json.loads(read_regular(path / _TEXT, _MAX_TEXT))
        index = EntityIndex.from_json(text["index"])
        tables = {part: _table(path / _file(part), description) for part, description in text["tables"].items()}
        source = str(text["source"])
        knowledge = Knowledge.from_tensors(load_file(path / _KNOWLEDGE))
        # Listed with its size where there is one, so a file that somebody else left there is not read.
        dated = _CHRONICLE in text["sizes"]
        chronicle = Chronicle.from_tensors(load_file(path / _CHRONICLE)) if dated else None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a store of tables ({error})") from error
    return Store(tables, index, knowledge, tuple(text["notes"]), source, chronicle)


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def _file(part: str) -> str:
    return f"{part}.safetensors"


def _table(path: Path, description: dict[str, Any]) -> DeliveryTable:
    tensors = {name: tensor if name in _KEPT_NARROW else _widen(tensor) for name, tensor in load_file(path).items()}
    matches = tuple(
        MatchInfo(file, date, (one, other), venue) for file, date, (one, other), venue in description["matches"]
    )
    names, longest = tuple(description["names"]), description["longest"]
    return DeliveryTable(**tensors, names=names, matches=matches, longest=longest)


def _narrow(tensor: Tensor) -> Tensor:
    """The tensor in the smallest type for disk: float16 for float32, and the narrowest integer that fits."""
    if tensor.dtype == torch.float32:
        return tensor.half().contiguous()
    if tensor.dtype != torch.int64:
        return tensor.contiguous()
    largest = int(tensor.max()) if tensor.numel() else 0
    for kind in (torch.int8, torch.int16, torch.int32):
        if largest <= torch.iinfo(kind).max:
            return tensor.to(kind).contiguous()
    return tensor.contiguous()


def _widen(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor.long()
