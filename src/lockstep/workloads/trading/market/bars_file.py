"""Reads files of daily bars from untrusted sources; every error is one line with the file, row, column and rule.

CSV (also gzipped) with a header row, or Parquet. The columns date, symbol, open, high, low, close and volume may be in
any order; others are ignored. Rows are numbered as lines of the file, the header being row 1. No torch here: data is
checked before any process of a run is started.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any

from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.untrusted import open_regular

PRICES = ("open", "high", "low", "close")
COLUMNS = ("date", "symbol", *PRICES, "volume")
# Limits that keep an untrusted file from filling the memory.
_LONGEST_LINE = 65_536  # Bytes.
_PARQUET_ROWS = 65_536  # Rows converted to Python objects at once.
_LARGEST_FILE = 4 << 30  # Bytes, after decompression.

Row = tuple[int, list[Any]]
"""A row's number and its values in the order of COLUMNS: text from CSV, typed values from Parquet."""


class BarsFile:
    """One file of bars; iterating yields complete rows with unchecked values."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.name = shown_path(path)
        if not self.path.is_file():
            raise UserError(f"data {self.name}: no such file; give the path of a CSV or Parquet file of daily bars")

    def __iter__(self) -> Iterator[Row]:
        return self._parquet_rows() if self.path.suffix.lower() in (".parquet", ".pq") else self._csv_rows()

    def wrong(self, rule: str, row: int | None = None, column: str = "", value: Any = None) -> UserError:
        """Build the error for a broken rule, with the file and, if given, the row, the column and the value."""
        place = f", row {row}" if row is not None else ""
        place += f", column {column}" if column else ""
        found = f": {shown(value)}" if value is not None else ""
        return UserError(f"data {self.name}{place}{found}: {rule}")

    def _csv_rows(self) -> Iterator[Row]:
        try:
            with closing(self._open()) as stream:
                # strict: raise on malformed quoting instead of guessing what was meant.
                reader = csv.reader(self._lines(stream), strict=True)
                header = next(reader, None)
                if header is None:
                    raise self.wrong("is empty; needed: a header row and bars below it")
                places = self._places([name.strip().lower() for name in header])
                for number, fields in enumerate(reader, start=2):
                    if len(fields) != len(header):
                        raise self.wrong(f"has {len(fields)} fields, the header has {len(header)}", number)
                    yield number, [fields[place].strip() for place in places]
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

    def _places(self, header: Sequence[str]) -> list[int]:
        """The index of each of COLUMNS in the header."""
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            found = ", ".join(shown(name) for name in header[:12])
            raise self.wrong(f"has no column {', '.join(missing)}; needed: {', '.join(COLUMNS)}; found: {found}", 1)
        twice = [name for name in COLUMNS if header.count(name) > 1]
        if twice:
            raise self.wrong("appears more than once; keep one of them", 1, twice[0])
        return [header.index(name) for name in COLUMNS]

    def _parquet_rows(self) -> Iterator[Row]:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise self.wrong("Parquet needs pyarrow; pip install 'lockstep[parquet]', or give a CSV file") from None
        try:
            with open_regular(self.path, links=True) as file, ParquetFile(file) as table:
                names = table.schema_arrow.names
                places = self._places([name.strip().lower() for name in names])
                # The first row of data is row 2, as in a CSV file with its header.
                number = 1
                for batch in table.iter_batches(_PARQUET_ROWS, columns=[names[place] for place in places]):
                    for values in zip(*(batch.column(i).to_pylist() for i in range(len(COLUMNS))), strict=True):
                        number += 1
                        yield number, ["" if value is None else value for value in values]
        except (ArrowException, OSError) as error:
            # Arrow's messages can have several lines; an error of ours has one.
            raise self.wrong(f"cannot be read as Parquet: {str(error).splitlines()[0][:120]}") from None


def read_day(file: BarsFile, row: int, value: Any) -> int:
    """Convert a date to a day number (proleptic Gregorian ordinal)."""
    if isinstance(value, datetime):
        return value.date().toordinal()
    if isinstance(value, date):
        return value.toordinal()
    try:
        # A time of day after the date is ignored: the bars are daily.
        return date.fromisoformat(str(value)[:10] if str(value)[10:11] in (" ", "T") else str(value)).toordinal()
    except ValueError:
        raise file.wrong("not a valid date; allowed: a date such as 2016-12-31", row, "date", value) from None


def read_price(file: BarsFile, row: int, column: str, value: Any) -> float:
    """Convert a price: a finite number above 0."""
    number = _number(file, row, column, value)
    if not number > 0:
        raise file.wrong("a price must be above 0", row, column, value)
    return number


def read_volume(file: BarsFile, row: int, value: Any) -> float:
    """Convert a volume: a finite number of at least 0; an empty field is 0."""
    number = 0.0 if value == "" else _number(file, row, "volume", value)
    if number < 0:
        raise file.wrong("a volume must be at least 0", row, "volume", value)
    return number


def _number(file: BarsFile, row: int, column: str, value: Any) -> float:
    try:
        # float() also accepts 1_000 and full-width digits; in a file of bars either is a mistake.
        number = float(value) if "_" not in str(value) and str(value).isascii() else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise file.wrong("must be a finite number", row, column, value)
    return number
