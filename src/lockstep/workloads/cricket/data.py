"""From what the user gave, or from nothing, to the tables that a model is trained and tested on."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lockstep.distributed.world import World
from lockstep.errors import LockstepError, RunFailed, UserError, error_of
from lockstep.output import tell
from lockstep.workloads.cricket.archive import Archive, named, open_archive
from lockstep.workloads.cricket.cache import (
    FORMAT,
    Store,
    cache_directory,
    is_whole,
    read_store,
    write_store,
)
from lockstep.workloads.cricket.league import simulate
from lockstep.workloads.cricket.ledger import Ledger
from lockstep.workloads.cricket.matches import Match, NotAMatch, read_match
from lockstep.workloads.cricket.scorebook import Scorebook, collect
from lockstep.workloads.cricket.split import PARTS, TRAIN, Split, check_source, shuffled
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
    source: str
    """Digest of the matches and of their split."""


def open_splits(choices: Choices, world: World) -> Splits:
    """The tables of a configuration, prepared by one rank if they are not yet there. Called by every rank."""
    store = open_store(choices, world)
    tables = [store.tables.get(part) for part in PARTS]
    assert tables[0] is not None and tables[1] is not None
    return Splits(tables[0], tables[1], tables[2], store.entities, store.source)


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
        _tell(store.notes)
    return store


def describe_matches(data: str, bad_files: str, store: Store, world: World) -> DeliveryTable:
    """The table of other matches, by what a store's training matches taught; those themselves are left out.

    Called by every rank.
    """
    books: list[Scorebook] = []

    def read() -> None:
        book, notes = _other_matches(data, bad_files, store)
        books.append(book)
        _tell(notes)

    # One rank finds what is wrong and tells it; the others read what is known to be right.
    led(world, read)
    book = books[0] if books else _other_matches(data, bad_files, store)[0]
    return describe(Ledger(book), Learned(store.index, store.knowledge, ()), out_of_fold=False)


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        tell(f"cricket: {note}", sys.stderr)


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
    source = _digest(choices, archive, split)
    path = cache_directory(choices.cache_dir, choices.data) / f"cricket-{_key(choices, source)}"
    if is_whole(path):
        return path
    notes: list[str] = []
    if archive is not None and split is not None:
        matches = list(_read(archive, split.files(), choices.bad_files, notes))
    else:
        matches = list(simulate(choices.matches, choices.split_seed))
        split = shuffled([match.file for match in matches], choices.split_seed)
    books = {part: collect(_chosen(matches, files)) for part, files in split.parts().items() if files}
    for part, book in books.items():
        if not len(book):
            raise UserError(f"data {choices.data}: no match for {part} has a delivery; there is nothing to learn from")
    learned = learn(Ledger(books[TRAIN]))
    try:
        write_store(path, learned.index, learned.everything, _summarised(notes), source, _tables(books, learned))
    except OSError as error:
        raise UserError(f"cache_dir {path.parent}: cannot be written ({error.strerror}); choose another") from error
    return path


def _chosen(matches: list[Match], files: tuple[str, ...]) -> list[Match]:
    names = set(files)
    return [match for match in matches if match.file in names]


def _tables(books: dict[str, Scorebook], learned: Learned) -> Iterator[tuple[str, DeliveryTable]]:
    """One table after the other, so that only one is in memory."""
    for part, book in books.items():
        yield part, describe(Ledger(book), learned, out_of_fold=part == TRAIN)


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


def _other_matches(data: str, bad_files: str, store: Store) -> tuple[Scorebook, tuple[str, ...]]:
    """Matches that were not trained on, and which files were left out."""
    archive = open_archive(Path(data))
    trained_on = {match.file for match in store.tables["train"].matches}
    notes: list[str] = []
    book = collect(_read(archive, [name for name in archive.names if name not in trained_on], bad_files, notes))
    if not len(book):
        raise UserError(f"data {named(archive.path)}: holds no delivery that the model was not trained on")
    return book, _summarised(notes)


def _summarised(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - _TOLD
    return (*notes[:_TOLD], *([f"and {more} more files"] if more > 0 else []))


def _digest(choices: Choices, archive: Archive | None, split: Split | None) -> str:
    """Which matches there are and how they are split, as sixteen letters: the same in every version of this program."""
    if archive and split:
        return _letters([archive.digest, split.parts()])
    return _letters(["league", choices.matches, choices.split_seed])


def _key(choices: Choices, source: str) -> str:
    """What the content of a store depends on, as sixteen letters."""
    return _letters([FORMAT, choices.bad_files, source])


def _letters(told: list[Any]) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
