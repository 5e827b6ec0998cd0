"""Files of recorded option quotes: a row for each contract and day, at the day's end. No torch here.

Columns are named as CBOE, DoltHub and other vendors do. Crossed, negative and missing quotes are left out and counted.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.config.values import shown
from lockstep.workloads.trading.market.table_file import Columns, TableFile, read_day, read_number

LARGEST_PRICE = 500_000.0
"""Dollars, of strikes and quotes; a key holds no larger strike."""
_MOST_QUOTES = 50_000_000
"""That are kept, at 57 bytes each and a few times that while they are sorted: an untrusted file must not fill the
memory."""
_KINDS = {"c": True, "call": True, "calls": True, "p": False, "put": False, "puts": False}
_MISSING = ("", "null", "nan", "none", "n/a")


class QuotesFile(TableFile):
    """One file of quotes."""

    flag = "chains"
    holds = "option quotes"
    # Of several that a file has, the first counts: CBOE has quotes of 15:45 and of the day's end, which is the bars'.
    names: ClassVar[Mapping[str, Sequence[str]]] = {
        "date": ("date", "quotedate", "tradedate", "datadate", "timestamp"),
        "symbol": ("underlyingsymbol", "actsymbol", "underlying", "underlyingticker", "symbol", "ticker", "root"),
        "expiry": ("expiry", "expiration", "expirationdate", "expirydate", "exdate", "expiredate"),
        "strike": ("strike", "strikeprice"),
        "type": ("type", "optiontype", "callput", "cpflag", "putcall", "right", "cp"),
        "bid": ("bid", "bideod", "bid1545", "bidprice", "bestbid"),
        "ask": ("ask", "askeod", "ask1545", "askprice", "bestask", "bestoffer"),
        "price": ("underlyingprice", "underlyinglast", "underlyingclose", "stockprice", "spotprice", "spot"),
    }
    needed = ("date", "expiry", "strike", "type", "bid", "ask")
    columns = ("date", "symbol", "expiry", "strike", "type", "bid", "ask", "price")

    def described(self, columns: Columns) -> str:
        """Which column is what, if a reader of the file might wonder; else empty."""
        named = columns.named
        wanted = [column for column in self.columns if column != "price"]
        if all(named.get(column, "").lower() == column for column in wanted):
            return ""
        parts = [f"{column} = {shown(named[column])}" for column in self.columns if column in named]
        return ", ".join([*parts, *([] if "symbol" in named else ["symbol = the file's name"])])


@dataclass
class QuoteRows:
    """The usable quotes of the traded symbols, N of them, as they are read."""

    symbol: array = field(default_factory=lambda: array("q"))
    day: array = field(default_factory=lambda: array("q"))
    expiry: array = field(default_factory=lambda: array("q"))
    strike: array = field(default_factory=lambda: array("q"))
    """Thousandths of a dollar, which is how contracts are named: equal strikes are equal numbers."""
    call: array = field(default_factory=lambda: array("b"))
    bid: array = field(default_factory=lambda: array("d"))
    ask: array = field(default_factory=lambda: array("d"))
    price: array = field(default_factory=lambda: array("d"))
    """The underlying's, 0 = the file does not say."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Rows that cannot be used, by the reason."""

    def leave_out(self, reason: str) -> None:
        """Count a row."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns."""
        kinds: dict[str, Any] = {"bid": np.float64, "ask": np.float64, "price": np.float64, "call": np.int8}
        names = ("symbol", "day", "expiry", "strike", "call", "bid", "ask", "price")
        return {name: np.frombuffer(getattr(self, name), kinds.get(name, np.int64)) for name in names}


def read_quotes(files: Iterable[QuotesFile], days: Mapping[str, Collection[int]], longest: int) -> QuoteRows:
    """Read the quotes of contracts with at most `longest` days to expiry, on these `days` of each symbol.

    Every value that is kept is checked.
    """
    rows = QuoteRows()
    traded = {symbol: (number, those) for number, (symbol, those) in enumerate(days.items())}
    for file in files:
        for number, (day, symbol, expiry, strike, kind, bid, ask, price) in file:
            # CBOE and Yahoo write indices with a caret, which the names of files of bars lose as well.
            known, with_bar = traded.get(str(symbol).removeprefix("^"), (None, ()))
            if known is None:
                rows.leave_out("of other symbols")
                continue
            today, end = read_day(file, number, day), read_day(file, number, expiry, "expiry")
            if end <= today:
                rows.leave_out("expired")
            elif end - today > longest:
                rows.leave_out(f"with more than {longest} days to expiry")
            elif reason := _unusable(file, number, bid, ask):
                rows.leave_out(reason)
            elif today not in with_bar:
                rows.leave_out("on days without a bar")
            else:
                _add(rows, file, number, (known, today, end), (strike, kind, bid, ask, price))
    return rows


def _unusable(file: QuotesFile, row: int, bid: Any, ask: Any) -> str:
    """Why nobody can trade at a quote; empty if one can."""
    if str(bid).lower() in _MISSING or str(ask).lower() in _MISSING:
        return "without bid or ask"
    low, high = read_number(file, row, "bid", bid), read_number(file, row, "ask", ask)
    if low < 0 or high < 0:
        return "negative"
    if high == 0:
        return "with ask 0"
    return "crossed" if low > high else ""


def _add(rows: QuoteRows, file: QuotesFile, row: int, when: tuple[int, int, int], values: tuple[Any, ...]) -> None:
    if len(rows.day) == _MOST_QUOTES:
        limit = f"exceeds the limit of {_MOST_QUOTES:,} quotes of all files"
        raise file.wrong(f"{limit}; choose fewer --symbols, or --data with fewer days", row)
    strike, kind, bid, ask, price = values
    call = _KINDS.get(str(kind).strip().lower())
    if call is None:
        raise file.wrong("not a kind of option; allowed: C, P, call, put", row, "type", kind)
    numbers = {"strike": _price(file, row, "strike", strike), "ask": _price(file, row, "ask", ask)}
    if numbers["strike"] < 0.001:
        raise file.wrong("a strike must be above 0", row, "strike", strike)
    for column, value in zip((rows.symbol, rows.day, rows.expiry), when, strict=True):
        column.append(value)
    rows.strike.append(round(numbers["strike"] * 1000))
    rows.call.append(call)
    rows.bid.append(read_number(file, row, "bid", bid))
    rows.ask.append(numbers["ask"])
    rows.price.append(0.0 if str(price).lower() in _MISSING else _price(file, row, "underlying price", price))


def _price(file: QuotesFile, row: int, column: str, value: Any) -> float:
    number = read_number(file, row, column, value)
    if not 0 <= number <= LARGEST_PRICE:
        raise file.wrong(f"out of range; allowed: 0 to {LARGEST_PRICE:,.0f} dollars", row, column, value)
    return number


def day_text(number: int) -> str:
    """A day number as a date."""
    return str(date.fromordinal(int(number)))
