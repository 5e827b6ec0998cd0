"""Files of daily bars, with columns as Yahoo, Stooq, Alpaca and spreadsheets name them. No torch here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lockstep.config.values import shown
from lockstep.workloads.trading.market.table_file import Columns, TableFile, read_number

PRICES = ("open", "high", "low", "close")


class BarsFile(TableFile):
    """One file of bars."""

    flag = "data"
    holds = "daily bars"
    names: ClassVar[Mapping[str, Sequence[str]]] = {
        "date": ("date", "timestamp", "datetime"),
        "symbol": ("symbol", "ticker"),
        **{price: (price,) for price in PRICES},
        "volume": ("volume", "vol"),
        "adjusted": ("adjclose", "adjustedclose", "closeadj"),
        "period": ("per",),
    }
    needed = ("date", *PRICES)
    columns = ("date", "symbol", *PRICES, "volume", "adjusted")
    adjusts: bool = True
    """Whether prices are multiplied by adjusted close / close, where there is an adjusted close."""

    def described(self, columns: Columns) -> str:
        """Which column is what, if a reader of the file might wonder; else empty."""
        named = columns.named
        if all(name.lower() == column for column, name in named.items()) and {"symbol", "volume"} <= named.keys():
            return ""
        wanted = ("date", "symbol", *PRICES, "volume")
        parts = [f"{column} = {shown(named[column])}" for column in wanted if column in named]
        parts += [] if "symbol" in named else ["symbol = the file's name"]
        parts += [] if "volume" in named else ["no volume"]
        if "adjusted" in named:
            factor = f"prices x {shown(named['adjusted'])} / {shown(named['close'])}"
            parts.append(
                factor if self.adjusts else f"{shown(named['adjusted'])} is not used: strikes are not adjusted"
            )
        return ", ".join(parts)

    def checked(self, number: int, columns: Columns, fields: Sequence[Any]) -> None:
        """Refuse bars of other periods than days, which Stooq has."""
        period = fields[columns.places["period"]] if "period" in columns.places else ""
        if period not in ("", "D", "d"):
            raise self.wrong("is no daily bar; give daily ones, whose period is D", number, "period", period)

    def begun(self, header: list[str], rows: Iterator[list[str]]) -> tuple[list[str], str, int]:
        """Take the symbol of a table as yfinance saves it: a row of prices' names, one of symbols, and an empty one."""
        if header[0].strip().lower() != "price":
            return super().begun(header, rows)
        tickers, dates = next(rows, []), next(rows, [])
        symbols = {name.strip() for name in tickers[1:]}
        if len(tickers) != len(header) or tickers[0].strip().lower() != "ticker" or len(dates) != len(header):
            raise self.wrong("begins like a table of yfinance, but has no row of tickers and of dates below that", 1)
        if len(symbols) != 1:
            raise self.wrong("has several symbols side by side; save one file for each symbol", 2)
        return ["date", *header[1:]], symbols.pop(), 4


def read_price(file: BarsFile, row: int, column: str, value: Any) -> float:
    """Convert a price: a finite number above 0."""
    number = read_number(file, row, column, value)
    if not number > 0:
        raise file.wrong("a price must be above 0", row, column, value)
    return number


def read_volume(file: BarsFile, row: int, value: Any) -> float:
    """Convert a volume: a finite number of at least 0; an empty field is 0."""
    number = 0.0 if value == "" else read_number(file, row, "volume", value)
    if number < 0:
        raise file.wrong("a volume must be at least 0", row, "volume", value)
    return number
