"""Prepares the tables for training and testing, from the user's match files or a simulated league."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.distributed.world import World
from lockstep.errors import RunFailed, UserError
from lockstep.output import tell
from lockstep.storage.user_cache import note_use, trim, user_cache
from lockstep.workloads.cricket.data.cache import (
    FORMAT,
    Store,
    is_whole,
    read_store,
    write_store,
)
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.table import DeliveryTable, Entities
from lockstep.workloads.cricket.features.tabulate import Learned, describe, learn, learn_by_day
from lockstep.workloads.cricket.matches.archive import Archive, named, open_archive
from lockstep.workloads.cricket.matches.league import simulate
from lockstep.workloads.cricket.matches.match import Match, NotAMatch, read_match
from lockstep.workloads.cricket.matches.scorebook import Scorebook, collect
from lockstep.workloads.cricket.matches.split import PARTS, TRAIN, Split, check_source, shuffled
from lockstep.workloads.cricket.settings import CricketSettings

_NAMED_FILES = 5
"""How many skipped files are named in messages; the rest are counted."""


@dataclass(frozen=True)
class Splits:
    """Training, validation and test deliveries; ids and careers of all three come from the training matches."""

    train: DeliveryTable
    validation: DeliveryTable
    test: DeliveryTable | None
    entities: Entities
    source: str
    """Digest of the matches and of their split."""


def open_splits(settings: CricketSettings, world: World) -> Splits:
    """The tables of a configuration, prepared by one rank if not cached. Called by every rank."""
    store = open_store(settings, world)
    tables = [store.tables.get(part) for part in PARTS]
    assert tables[0] is not None and tables[1] is not None
    return Splits(tables[0], tables[1], tables[2], store.entities, store.source)


def open_store(settings: CricketSettings, world: World) -> Store:
    """Like `open_splits`, with everything learned from the training matches. Called by every rank."""

    def find() -> str:
        with data_errors():
            return str(prepare(settings))

    # Rank 0 prepares while the others wait for the path; then every rank reads the files itself.
    path = Path(world.led(find))
    store: Store | None = None
    with contextlib.suppress(ValueError):
        store = read_store(path)
    # Ranks decide together: if one of them cannot read the store, all fail with the same message.
    if world.agree(int(store is None)):
        raise UserError(
            f"cache_dir {path.parent}: not all ranks can read {path.name} there; give a --cache-dir on a shared disk"
        )
    assert store is not None
    notes = store.notes
    world.led(lambda: _tell(notes))
    return store


def describe_matches(data: str, bad_files: str, store: Store, world: World) -> DeliveryTable:
    """The table of other matches, described by a store's knowledge; its training matches are left out.

    Called by every rank.
    """
    books: list[Scorebook] = []

    def read() -> None:
        with data_errors():
            book, notes = _other_matches(data, bad_files, store)
        books.append(book)
        _tell(notes)

    # One rank reads first and reports errors; the others then read files that are known to be valid.
    world.led(read)
    book = books[0] if books else _other_matches(data, bad_files, store)[0]
    return describe(Scoreboard(book), store.learned, out_of_fold=False)


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        tell(f"cricket: {note}", sys.stderr)


@contextlib.contextmanager
def data_errors() -> Iterator[None]:
    """Turn errors of reading matches, and lack of memory, into one-line errors."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or 'data'}: {error.strerror or error}") from error
    except MemoryError as error:
        raise RunFailed("data: does not fit into this machine's memory; give fewer matches") from error


def prepare(settings: CricketSettings) -> Path:
    """The directory of a configuration's store, which is built if missing. Called by one rank only."""
    archive, split = check_source(settings.data, settings.split, settings.split_seed) if settings.data else (None, None)
    source = _digest(settings, archive, split)
    folder = Path(settings.cache_dir) if settings.cache_dir else user_cache()
    path = folder / f"cricket-{_key(settings, source)}"
    if is_whole(path):
        note_use(path)
        return path
    notes: list[str] = []
    if archive is not None and split is not None:
        matches = list(read_matches(archive, split.files(), settings.bad_files, notes))
    else:
        matches = list(simulate(settings.matches, settings.split_seed))
        split = shuffled([match.file for match in matches], settings.split_seed)
    books = {part: collect(_chosen(matches, files)) for part, files in split.parts().items() if files}
    for part, book in books.items():
        if not len(book):
            raise UserError(f"data {settings.data}: no match for {part} has a delivery; give more matches")
    learned = (learn_by_day if settings.careers == "earlier" else learn)(Scoreboard(books[TRAIN]))
    try:
        write_store(path, learned, _summarised(notes), source, _tables(books, learned))
    except OSError as error:
        raise UserError(f"cache_dir {path.parent}: cannot be written ({error.strerror}); choose another") from error
    # A folder that the user chose is left to the user.
    if not settings.cache_dir:
        trim(folder)
    return path


def _chosen(matches: list[Match], files: tuple[str, ...]) -> list[Match]:
    names = set(files)
    return [match for match in matches if match.file in names]


def _tables(books: dict[str, Scorebook], learned: Learned) -> Iterator[tuple[str, DeliveryTable]]:
    """Yield one table after the other, so that only one is in memory."""
    for part, book in books.items():
        yield part, describe(Scoreboard(book), learned, out_of_fold=part == TRAIN)


def read_matches(archive: Archive, names: list[str], bad_files: str, notes: list[str]) -> Iterator[Match]:
    """Yield the matches of some files; of files that are none, a note is added or UserError raised (`bad_files`)."""
    for name, content in archive.read(names):
        try:
            if isinstance(content, str):
                raise NotAMatch(content)
            yield read_match(name, content)
        except NotAMatch as reason:
            if bad_files == "refuse":
                message = f"data {named(archive.path)}: {name}: {reason}; repair or remove it, or use --bad-files skip"
                raise UserError(message) from reason
            notes.append(f"left out {name}: {reason}")


def _other_matches(data: str, bad_files: str, store: Store) -> tuple[Scorebook, tuple[str, ...]]:
    """Matches that were not trained on, and messages about skipped files."""
    archive = open_archive(Path(data))
    trained_on = {match.file for match in store.tables["train"].matches}
    notes: list[str] = []
    names = [name for name in archive.names if name not in trained_on]
    book = collect(read_matches(archive, names, bad_files, notes))
    if not len(book):
        raise UserError(f"data {named(archive.path)}: all its deliveries were trained on; give other matches")
    return book, _summarised(notes)


def _summarised(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - _NAMED_FILES
    return (*notes[:_NAMED_FILES], *([f"and {more} more files"] if more > 0 else []))


def _digest(settings: CricketSettings, archive: Archive | None, split: Split | None) -> str:
    """Digest of the matches, their split and the kind of careers, 16 hex digits.

    Must not change between versions: runs store it.
    """
    # The usual careers are not part of it, so that runs of earlier versions still find theirs.
    careers = [settings.careers] if settings.careers != "all" else []
    if archive and split:
        return _short_digest([archive.digest, split.parts(), *careers])
    return _short_digest(["league", settings.matches, settings.split_seed, *careers])


def _key(settings: CricketSettings, source: str) -> str:
    """Digest of everything that a store's content depends on, 16 hex digits."""
    return _short_digest([FORMAT, settings.bad_files, source])


def _short_digest(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]
