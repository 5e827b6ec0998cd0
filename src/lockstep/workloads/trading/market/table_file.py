"""Reads tables from untrusted files; every error is one line with the file, row, column and rule.

CSV (also gzipped) with a header row, or Parquet. Columns are found by name, in any order and spelling; others are
ignored. Rows are numbered as lines of the file, the header being row 1. No torch here: data is checked before any
process of a run is started.
"""

import csv
import gzip
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.untrusted import open_regular

SUFFIXES = (".gz", ".csv", ".txt", ".parquet", ".pq")
"""What the names of files end in that are read from a folder; not part of a symbol's name."""
# Limits that keep an untrusted file from filling the memory.
_LONGEST_LINE = 65_536  # Bytes.
_PARQUET_ROWS = 65_536  # Rows converted to Python objects at once.
_LARGEST_FILE = 4 << 30  # Bytes, after decompression.
_MOST_FILES = 20_000  # Of a folder.

Row = tuple[int, list[Any]]
"""A row's number and its values in the order of `TableFile.columns`: text from CSV, typed values from Parquet; empty if
the file has no such column."""
File = TypeVar("File", bound="TableFile")


@dataclass(frozen=True)
class Columns:
    """Where the columns of a file are; those that it does not have are missing."""

    header: tuple[str, ...]
    places: dict[str, int]

    @classmethod
    def of(cls, header: Sequence[str], names: Mapping[str, Sequence[str]]) -> "Columns":
        """Find them in a header; `names`: by column, in lower case and without spaces, dashes and the like."""
        plain = [re.sub(r"[\s<>_-]", "", name).lower() for name in header]
        found = {}
        for column, known in names.items():
            # A file may have a date and a timestamp: the name that is listed first counts.
            name = next((name for name in known if name in plain), None)
            if name is not None:
                found[column] = plain.index(name)
        return cls(tuple(header), found)

    @property
    def named(self) -> dict[str, str]:
        """Each column's name in the file."""
        return {column: self.header[place].strip() for column, place in self.places.items()}

    @property
    def twice(self) -> list[str]:
        """Those whose name appears more than once."""
        names = [name.strip().lower() for name in self.header]
        return [column for column, place in self.places.items() if names.count(names[place]) > 1]


class TableFile(ABC):
    """One file of rows; iterating yields complete rows with unchecked values."""

    flag: ClassVar[str]
    """The setting that names such files, for errors."""
    holds: ClassVar[str]
    """What they hold, for errors."""
    names: ClassVar[Mapping[str, Sequence[str]]]
    """The names that each column may have, see `Columns.of`; the first is the plain name."""
    needed: ClassVar[tuple[str, ...]]
    """Columns without which a file cannot be used."""
    columns: ClassVar[tuple[str, ...]]
    """The values of a row; one of them is the symbol, which the file's name may give instead of a column."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.name = shown_path(path)
        self.layout = ""
        """Which of its columns is what, once its header was read; empty if that goes without saying."""
        if not self.path.is_file():
            raise UserError(
                f"{self.flag} {self.name}: no such file; give the path of a CSV or Parquet file of {self.holds}"
            )

    def __iter__(self) -> Iterator[Row]:
        return self._parquet_rows() if self.path.suffix.lower() in (".parquet", ".pq") else self._csv_rows()

    @abstractmethod
    def described(self, columns: Columns) -> str:
        """Which column is what, if a reader of the file might wonder; else empty."""

    def checked(self, number: int, columns: Columns, fields: Sequence[Any]) -> None:  # noqa: B027 - few files need it
        """Raise UserError for a row that is of another kind."""

    def begun(self, header: list[str], rows: Iterator[list[str]]) -> tuple[list[str], str, int]:
        """The header, the symbol of all rows if it says so, and the number of the first row, from the first line."""
        return header, "", 2

    def wrong(self, rule: str, row: int | None = None, column: str = "", value: Any = None) -> UserError:
        """Build the error for a broken rule, with the file and, if given, the row, the column and the value."""
        place = f", row {row}" if row is not None else ""
        place += f", column {column}" if column else ""
        found = f": {shown(value)}" if value is not None else ""
        return UserError(f"{self.flag} {self.name}{place}{found}: {rule}")

    def _csv_rows(self) -> Iterator[Row]:
        try:
            with closing(self._open()) as stream:
                # strict: raise on malformed quoting instead of guessing what was meant.
                reader = csv.reader(self._lines(stream), strict=True)
                header = next(reader, None)
                if not header:
                    found = "is empty" if header is None else "begins with an empty line"
                    raise self.wrong(f"{found}; needed: a row of names and {self.holds} below it")
                header, symbol, first = self.begun(header, reader)
                columns, symbol = self._columns(header, symbol)
                for number, fields in enumerate(reader, start=first):
                    if len(fields) != len(header):
                        raise self.wrong(f"has {len(fields)} fields, the header has {len(header)}", number)
                    yield number, self._row(number, columns, symbol, [field.strip() for field in fields])
        except csv.Error as error:
            raise self.wrong(f"is not valid CSV: {error}", reader.line_num) from None
        except (OSError, EOFError, zlib.error) as error:
            raise self.wrong(f"cannot be read: {error}") from None

    def _open(self) -> IO[bytes]:
        # A link is followed: the user named this path.
        stream = open_regular(self.path, links=True)
        # Recognised by gzip's magic number, so that the name need not end in .gz.
        zipped = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        # `_lines` counts decompressed bytes as it reads, so a gzip bomb is refused at the size limit.
        return gzip.open(stream, "rb") if zipped else stream  # type: ignore[return-value]

    def _lines(self, stream: IO[bytes]) -> Iterator[str]:
        """Decode line by line, so that a file with one endless line is refused before it fills the memory."""
        number, size = 0, 0
        while line := stream.readline(_LONGEST_LINE):
            number += 1
            size += len(line)
            if size > _LARGEST_FILE:
                raise self.wrong(
                    f"exceeds the limit of {_LARGEST_FILE >> 30} GiB for a file; give a shorter one", number
                )
            # A line of exactly the limit is complete only if it ends here.
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                raise self.wrong(f"is longer than the {_LONGEST_LINE:,} bytes a row may have", number)
            try:
                # Spreadsheets write a byte order mark at the start of a file; utf-8-sig removes it.
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise self.wrong("is not UTF-8 text; convert the file (iconv -t utf-8)", number) from None
            if "\0" in text:
                raise self.wrong("contains a zero byte, so it is not UTF-8 text; convert the file", number)
            yield text

    def _columns(self, header: Sequence[str], symbol: str = "") -> tuple[Columns, str]:
        """Where the columns are, and the symbol of all rows; that is empty if there is a column of symbols."""
        columns = Columns.of(header, self.names)
        if missing := [name for name in self.needed if name not in columns.places]:
            found = ", ".join(shown(name.strip().lower()) for name in header[:12])
            raise self.wrong(
                f"has no column {', '.join(missing)}; needed: {', '.join(self.needed)}, and symbol if the file is "
                f"not named after one; found: {found}",
                1,
            )
        if columns.twice:
            raise self.wrong("appears more than once; keep one of them", 1, columns.twice[0])
        symbol = "" if "symbol" in columns.places else symbol or symbol_in_name(self.path)
        if not symbol and "symbol" not in columns.places:
            raise self.wrong("has no column symbol, and its name does not begin with one; rename it to SYMBOL.csv", 1)
        self.layout = self.described(columns)
        return columns, symbol

    def _row(self, number: int, columns: Columns, symbol: str, fields: Sequence[Any]) -> list[Any]:
        """The values in the order of `columns`."""
        self.checked(number, columns, fields)
        places = columns.places
        found = [fields[places[name]] if name in places else "" for name in self.columns]
        if symbol:
            found[self.columns.index("symbol")] = symbol
        return found

    def _parquet_rows(self) -> Iterator[Row]:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise self.wrong(
                "Parquet needs pyarrow; pip install 'lockstep-train[parquet]', or give a CSV file"
            ) from None
        try:
            with open_regular(self.path, links=True) as file, ParquetFile(file) as table:
                names = table.schema_arrow.names
                columns, symbol = self._columns(names)
                # Only the columns that are needed are read; the others keep their place as None.
                wanted = sorted(columns.places.values())
                # The first row of data is row 2, as in a CSV file with its header.
                number = 1
                for batch in table.iter_batches(_PARQUET_ROWS, columns=[names[place] for place in wanted]):
                    for values in zip(*(batch.column(names[place]).to_pylist() for place in wanted), strict=True):
                        number += 1
                        fields: list[Any] = [""] * len(names)
                        for place, value in zip(wanted, values, strict=True):
                            fields[place] = "" if value is None else value
                        yield number, self._row(number, columns, symbol, fields)
        except (ArrowException, OSError) as error:
            # Arrow's messages can have several lines; an error of ours has one.
            raise self.wrong(f"cannot be read as Parquet: {str(error).splitlines()[0][:120]}") from None


def read_day(file: TableFile, row: int, value: Any, column: str = "date") -> int:
    """Convert a date to a day number (proleptic Gregorian ordinal)."""
    if isinstance(value, datetime):
        return value.date().toordinal()
    if isinstance(value, date):
        return value.toordinal()
    try:
        # A time of day after the date is ignored: a row is for a day.
        return date.fromisoformat(str(value)[:10] if str(value)[10:11] in (" ", "T") else str(value)).toordinal()
    except ValueError:
        raise file.wrong("not a valid date; allowed: a date such as 2016-12-31", row, column, value) from None


def read_number(file: TableFile, row: int, column: str, value: Any) -> float:
    """Convert a finite number."""
    try:
        # float() also accepts 1_000 and full-width digits; in a table either is a mistake.
        number = float(value) if "_" not in str(value) and str(value).isascii() else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise file.wrong("must be a finite number", row, column, value)
    return number


def files_of(kind: type[File], text: str) -> list[File]:
    """The files that a list of files and folders, separated by commas, names."""
    found: list[File] = []
    for name in filter(None, map(str.strip, text.split(","))):
        found += _in_folder(kind, Path(name)) if Path(name).is_dir() else [kind(name)]
    if not found:
        raise UserError(
            f"{kind.flag} {shown(text)}: names no file; give the path of a CSV or Parquet file, or of a folder"
        )
    return found


def _in_folder(kind: type[File], folder: Path) -> list[File]:
    """The files of a folder by their names; of hidden ones and other kinds there may be any."""
    where = f"{kind.flag} {shown_path(str(folder))}"
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.name[0] != ".")
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from None
    if not paths or len(paths) > _MOST_FILES:
        raise UserError(
            f"{where}: has {len(paths):,} files that end in {', '.join(SUFFIXES)}; needed: 1 to {_MOST_FILES:,}"
        )
    return [kind(str(path)) for path in paths]


def symbol_in_name(path: Path) -> str:
    """The symbol that a file is named after: SPY in SPY.csv.gz and `SPY (1).csv`, VIX in ^VIX.csv; else empty."""
    name = path.name
    while name.lower().endswith(SUFFIXES):
        name = Path(name).stem
    found = re.match(r"\^?([A-Za-z0-9][A-Za-z0-9.=_-]*)", name)
    return found[1] if found else ""
