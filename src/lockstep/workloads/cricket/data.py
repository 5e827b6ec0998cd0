"""From what the user gave, or from nothing, to the tables that a model is trained and tested on."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from lockstep.core.distributed.world import World
from lockstep.core.errors import LockstepError, RunFailed, UserError, error_of
from lockstep.workloads.cricket.archive import Archive, named, open_archive
from lockstep.workloads.cricket.cache import (
    FORMAT,
    Store,
    cache_directory,
    entities_of,
    is_whole,
    read_store,
    write_store,
)
from lockstep.workloads.cricket.league import simulate
from lockstep.workloads.cricket.ledger import Ledger
from lockstep.workloads.cricket.matches import Match, NotAMatch, read_match
from lockstep.workloads.cricket.scorebook import Scorebook, collect
from lockstep.workloads.cricket.split import PARTS, Split, check_source, shuffled
from lockstep.workloads.cricket.table import DeliveryTable, Entities
from lockstep.workloads.cricket.tabulate import Learned, describe, learn

_TOLD = 5
"""How many left-out files are named; the others are counted."""


class Choices(Protocol):
    """What of a configuration says where the matches come from."""

    @property
    def data(self) -> str:
        """Folder or zip of match files; empty = a simulated league."""

    @property
    def split(self) -> str:
        """JSON file with the names of each part; empty = by split_seed."""

    @property
    def split_seed(self) -> int:
        """What decides the split where no file does."""

    @property
    def bad_files(self) -> str:
        """`skip` or `refuse`."""

    @property
    def cache_dir(self) -> str:
        """Folder for stores; empty = beside the data."""

    @property
    def matches(self) -> int:
        """Matches of the simulated league."""


@dataclass(frozen=True)
class Splits:
    """Training, validation and test deliveries; ids and careers of all three come from the training matches."""

    train: DeliveryTable
    validation: DeliveryTable
    test: DeliveryTable | None
    entities: Entities


def open_splits(choices: Choices, world: World) -> Splits:
    """The tables of a configuration, prepared by one rank if they are not yet there. Called by every rank."""
    store = open_store(choices, world)
    tables = [store.tables.get(part) for part in PARTS]
    assert tables[0] is not None and tables[1] is not None
    return Splits(tables[0], tables[1], tables[2], store.entities)


def open_store(choices: Choices, world: World) -> Store:
    """As `open_splits`, with all that was learned from the training matches. Called by every rank."""
    path = Path(led(world, lambda: str(prepare(choices))))
    store: Store | None = None
    with contextlib.suppress(ValueError):
        store = read_store(path)
    if world.agree(int(store is None)):
        raise UserError(f"cache_dir {path.parent}: not all ranks can read {path.name} there; use a disk they share")
    assert store is not None
    if world.leads:
        for note in store.notes:
            print(f"cricket: {note}", file=sys.stderr, flush=True)
    return store


def describe_matches(data: str, bad_files: str, store: Store, world: World) -> DeliveryTable:
    """The table of other matches, by what a store's training matches taught; those themselves are left out.

    Called by every rank.
    """

    def check() -> str:
        _other_matches(data, bad_files, store)
        return ""

    led(world, check)
    book = _other_matches(data, bad_files, store)
    learned = Learned(store.index, store.knowledge, ())
    return describe(Ledger(book), learned, np.zeros(len(book.matches), bool))


def led(world: World, work: Callable[[], Any]) -> Any:
    """What work done by one rank gives (JSON), on all; its error, too, is raised on all. Called by every rank."""
    outcome: dict[str, Any] | None = None
    if world.leads:
        try:
            outcome = {"value": work()}
        except LockstepError as error:
            outcome = {"error": [str(error), error.exit_code]}
        except OSError as error:
            outcome = {"error": [f"{error.filename or 'data'}: {error.strerror or error}", UserError.exit_code]}
        except MemoryError:
            outcome = {
                "error": ["data: more than this machine's memory holds; give fewer matches", RunFailed.exit_code]
            }
    outcome = world.from_leader(outcome)
    assert outcome is not None
    if "error" in outcome:
        raise error_of(*outcome["error"])
    return outcome["value"]


def prepare(choices: Choices) -> Path:
    """The directory of a configuration's store, which is made if it is not yet there. For one rank."""
    archive, split = check_source(choices.data, choices.split, choices.split_seed) if choices.data else (None, None)
    path = cache_directory(choices.cache_dir, choices.data) / f"cricket-{_key(choices, archive, split)}"
    if is_whole(path):
        return path
    notes: list[str] = []
    if archive is not None and split is not None:
        book = collect(_read(archive, split.files(), choices.bad_files, notes))
    else:
        book = collect(simulate(choices.matches, choices.split_seed))
        split = shuffled([match.file for match in book.matches], choices.split_seed)
    store = make_store(book, split, notes)
    try:
        write_store(path, store)
    except OSError as error:
        raise UserError(f"cache_dir {path.parent}: cannot be written ({error.strerror}); choose another") from error
    return path


def make_store(book: Scorebook, split: Split, notes: list[str]) -> Store:
    """Learn from the training matches of a scorebook, and describe every part's deliveries."""
    training = np.isin([match.file for match in book.matches], split.train)
    for part, files in split.parts().items():
        if files and not np.isin([book.matches[match].file for match in np.unique(book.match)], files).any():
            raise UserError(f"data: no match for {part} has a delivery; nothing can be learned from them")
    ledger = Ledger(book)
    learned = learn(ledger, training)
    whole = describe(ledger, learned, training)
    tables = {part: take_matches(whole, files) for part, files in split.parts().items() if files}
    return Store(tables, learned.index, learned.everything, _entities(learned), _summarised(notes))


def take_matches(table: DeliveryTable, files: tuple[str, ...]) -> DeliveryTable:
    """The deliveries of some of a table's matches, in the table's order."""
    chosen = torch.tensor([match.file in set(files) for match in table.matches])
    rows = torch.nonzero(chosen[table.match]).squeeze(1)
    # How far each row and each match moves up.
    new_row = torch.cumsum(chosen[table.match].long(), 0) - 1
    new_match = torch.cumsum(chosen.long(), 0) - 1
    tensors = {name: tensor[rows] for name, tensor in table.tensors().items() if name != "sample"}
    tensors["first"] = new_row[tensors["first"]]
    tensors["match"] = new_match[tensors["match"]]
    tensors["sample"] = torch.nonzero(tensors["first"] != torch.arange(len(rows))).squeeze(1)
    starts = torch.unique(tensors["first"])
    lengths = torch.diff(starts, append=torch.tensor([len(rows)]))
    matches = tuple(match for match, keep in zip(table.matches, chosen.tolist(), strict=True) if keep)
    longest = int(lengths.max()) if len(rows) else 0
    return DeliveryTable(**tensors, names=table.names, matches=matches, longest=longest)


def _read(archive: Archive, names: list[str], bad_files: str, notes: list[str]) -> Iterator[Match]:
    for name, content in archive.read(names):
        try:
            if isinstance(content, str):
                raise NotAMatch(content)
            yield read_match(name, content)
        except NotAMatch as reason:
            if bad_files == "refuse":
                told = f"data {named(archive.path)}: {name}: {reason}; repair or remove it, or use --bad-files skip"
                raise UserError(told) from reason
            notes.append(f"left out {name}: {reason}")


def _other_matches(data: str, bad_files: str, store: Store) -> Scorebook:
    archive = open_archive(Path(data))
    trained_on = {match.file for match in store.tables["train"].matches}
    notes: list[str] = []
    book = collect(_read(archive, [name for name in archive.names if name not in trained_on], bad_files, notes))
    if not len(book):
        raise UserError(f"data {named(archive.path)}: holds no delivery that the model was not trained on")
    return book


def _entities(learned: Learned) -> Entities:
    balls = learned.everything.counts["striker"].sum(1) + learned.everything.counts["bowler"].sum(1)
    return entities_of(learned.index, balls.tolist())


def _summarised(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - _TOLD
    return (*notes[:_TOLD], *([f"and {more} more files"] if more > 0 else []))


def _key(choices: Choices, archive: Archive | None, split: Split | None) -> str:
    """What the content of a store depends on, as sixteen letters."""
    source: list[Any] = [FORMAT, choices.bad_files]
    source += [archive.digest, split.parts()] if archive and split else ["league", choices.matches, choices.split_seed]
    return hashlib.sha256(json.dumps(source).encode()).hexdigest()[:16]
