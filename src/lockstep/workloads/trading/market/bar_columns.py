"""Finds the columns of a file of bars by name, as Yahoo, Stooq, Alpaca and spreadsheets call them. No torch here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.config.values import shown

PRICES = ("open", "high", "low", "close")
NEEDED = ("date", *PRICES)
# Without spaces, dashes, underscores and Stooq's angle brackets; the first is the plain name.
_NAMES = {
    "date": ("date", "timestamp", "datetime"),
    "symbol": ("symbol", "ticker"),
    **{price: (price,) for price in PRICES},
    "volume": ("volume", "vol"),
    "adjusted": ("adjclose", "adjustedclose", "closeadj"),
    "period": ("per",),
}
SUFFIXES = (".gz", ".csv", ".txt", ".parquet", ".pq")
"""What the names of files end in that are read from a folder; not part of a symbol's name."""


@dataclass(frozen=True)
class Columns:
    """Where the columns of a file are; those that it does not have are missing."""

    header: tuple[str, ...]
    places: dict[str, int]

    @classmethod
    def of(cls, header: Sequence[str]) -> "Columns":
        """Find them in a header."""
        plain = [re.sub(r"[\s<>_-]", "", name).lower() for name in header]
        found = {}
        for column, names in _NAMES.items():
            # A file may have a date and a timestamp: the name that is listed first counts.
            name = next((name for name in names if name in plain), None)
            if name is not None:
                found[column] = plain.index(name)
        return cls(tuple(header), found)

    @property
    def missing(self) -> list[str]:
        """Those without which there are no bars."""
        return [name for name in NEEDED if name not in self.places]

    @property
    def twice(self) -> list[str]:
        """Those whose name appears more than once."""
        names = [name.strip().lower() for name in self.header]
        return [column for column, place in self.places.items() if names.count(names[place]) > 1]

    def described(self) -> str:
        """Which column is what, if a reader of the file might wonder; else empty."""
        named = {column: self.header[place].strip() for column, place in self.places.items()}
        if all(name.lower() == column for column, name in named.items()) and {"symbol", "volume"} <= named.keys():
            return ""
        wanted = ("date", "symbol", *PRICES, "volume")
        parts = [f"{column} = {shown(named[column])}" for column in wanted if column in named]
        parts += [] if "symbol" in named else ["symbol = the file's name"]
        parts += [] if "volume" in named else ["no volume"]
        if "adjusted" in named:
            parts.append(f"prices x {shown(named['adjusted'])} / {shown(named['close'])}")
        return ", ".join(parts)


def symbol_in_name(path: Path) -> str:
    """The symbol that a file is named after: SPY in SPY.csv.gz and `SPY (1).csv`, VIX in ^VIX.csv; else empty."""
    name = path.name
    while name.lower().endswith(SUFFIXES):
        name = Path(name).stem
    found = re.match(r"\^?([A-Za-z0-9][A-Za-z0-9.=_-]*)", name)
    return found[1] if found else ""
