"""Splits matches into training, validation and test. Nothing here needs torch."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.untrusted import parse_json, read_regular
from lockstep.workloads.cricket.matches.archive import Archive, named, open_archive

TRAIN, VALIDATION, TEST = "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)
_SPELLINGS = {TRAIN: TRAIN, "val": VALIDATION, VALIDATION: VALIDATION, TEST: TEST}
_MAX_BYTES = 64 << 20
"""Largest split file that is read; a name takes some 15 bytes, so real ones stay far below."""


@dataclass(frozen=True)
class Split:
    """The file names of each part; matches in none of them are not used."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    def files(self) -> list[str]:
        """All files that are used, sorted."""
        return sorted((*self.train, *self.validation, *self.test))

    def parts(self) -> dict[str, tuple[str, ...]]:
        """The files of each of PARTS."""
        return {TRAIN: self.train, VALIDATION: self.validation, TEST: self.test}


def check_source(data: str, split: str, seed: int) -> tuple[Archive, Split]:
    """Open the source and its split, checked as far as possible without reading a match; UserError if invalid."""
    archive = open_archive(Path(data))
    return archive, read_split(Path(split), archive) if split else shuffled(archive.names, seed)


def shuffled(names: list[str], seed: int) -> Split:
    """Split 80/10/10: the names are sorted, then shuffled by Python's `random` with the seed."""
    # The original program's rule: the same seed gives the same split, so that results can be compared.
    order = sorted(names)
    random.Random(seed).shuffle(order)
    train, validation = int(0.8 * len(order)), int(0.1 * len(order))
    if not train or not validation:
        raise UserError(f"data: {len(order)} match file(s) are too few to split 80/10/10; give at least 10, or --split")
    return Split(tuple(order[:train]), tuple(order[train : train + validation]), tuple(order[train + validation :]))


def read_split(path: Path, archive: Archive) -> Split:
    """Read a split from a JSON file with lists of file names: train, val (or validation) and optionally test."""
    where = f"split {named(path)}"
    try:
        document = parse_json(read_regular(path, _MAX_BYTES, links=True))
    except OSError as error:
        raise UserError(f"{where}: cannot be read ({error.strerror}); give a JSON file of file names") from error
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON ({type(error).__name__}); give lists of file names") from error
    parts = _parts(document, where)
    seen: dict[str, str] = {}
    for part, files in parts.items():
        for file in files:
            if file in seen:
                raise UserError(f"{where}: {shown(file)} is named twice ({seen[file]} and {part}); name it once")
            if file not in archive.members:
                raise UserError(f"{where}: {part} names {shown(file)}, which is not in {named(archive.path)}")
            seen[file] = part
    if not parts[TRAIN] or not parts[VALIDATION]:
        raise UserError(f"{where}: names no match for {TRAIN if not parts[TRAIN] else VALIDATION}; both need some")
    return Split(parts[TRAIN], parts[VALIDATION], parts[TEST])


def _parts(document: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(document, dict):
        raise UserError(f"{where}: not a JSON object with lists train and val of file names")
    parts: dict[str, tuple[str, ...]] = dict.fromkeys(PARTS, ())
    for key, files in document.items():
        if key not in _SPELLINGS:
            raise UserError(f"{where}: {shown(key)} is not a part; allowed: train, val, test")
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
            raise UserError(f"{where}: {key} is not a list of file names")
        parts[_SPELLINGS[key]] += tuple(files)
    return parts
