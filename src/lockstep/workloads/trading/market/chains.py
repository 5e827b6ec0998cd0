"""Recorded option chains, joined with the bars: which contracts an order means on each day, and every quote of a day.

R: bars of all symbols, Q: quotes. No torch here: data is checked before any process of a run is started.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.output import counted
from lockstep.workloads.trading.market.data_notes import about_layouts
from lockstep.workloads.trading.market.quotes_file import QuoteRows, QuotesFile, day_text, read_quotes
from lockstep.workloads.trading.market.settings import EXPIRIES, MONEYNESS, MarketSettings
from lockstep.workloads.trading.market.table_file import files_of

STRIKE_BITS, DAY_BITS = 29, 10
"""Of a quote's key: thousandths of a dollar, up to 536,870 dollars, and days to expiry, up to 1,023."""
_MOST_ROWS = 1 << (63 - STRIKE_BITS - 1 - DAY_BITS)
_HALF_STEP = 0.025
"""How far, as a fraction of the price, a listed strike may be from the one that an order means: less than half of the
way to the next, so that two legs never mean the same contract."""
_NEAREST, _SHARE = 7, 0.6
"""How many days a listed expiry may be from the one that an order means: a share of the latter, or so many."""
_DIFFERENT = 0.05
"""How far the chains' price of the underlying may be from the bars' before they do not belong together."""
_DAYS = 10_000_000  # More than there are day numbers, to combine a symbol and a day to one number.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chains:
    """Quotes that can be traded, sorted by key; equal to itself alone, so that what is made of it can be cached."""

    close: Floats
    """(R,) of the bars, in dollars."""

    key: Ints
    """(Q,) see `keys`."""
    bid: Floats
    ask: Floats
    nearest_quote: Ints
    """(R, 2, 5, 5) the quote of the call and the put nearest to each expiry and strike of the chain; -1 = none is near
    enough."""
    notes: tuple[str, ...] = ()
    """What a user should know about the files, a line each."""


def keys(row: Ints, days: Ints, call: Ints, strike: Ints) -> Ints:
    """One number for the quote of a contract on a day; strike: in thousandths of a dollar."""
    return (((row << DAY_BITS) + days << 1) + call << STRIKE_BITS) + strike


def farthest(wanted: int) -> int:
    """Days that a listed expiry may be from a wanted one."""
    return max(_NEAREST, int(_SHARE * wanted))


def load_chains(settings: MarketSettings, symbols: Sequence[str], symbol: Ints, day: Ints, close: Floats) -> Chains:
    """Read and check the files that a configuration names, for bars of (R,) symbols, days and closes."""
    files = files_of(QuotesFile, settings.chains)
    if len(day) >= _MOST_ROWS:
        raise UserError(f"chains: {len(day):,} bars are more than {_MOST_ROWS:,}; choose fewer --symbols or days")
    days = {name: frozenset(day[symbol == number].tolist()) for number, name in enumerate(symbols)}
    rows = read_quotes(files, days, max(EXPIRIES) + farthest(max(EXPIRIES)))
    quotes = _on_bars(rows, symbol, day)
    for number, name in enumerate(symbols):
        _check_symbol(
            settings, name, {key: column[quotes["symbol"] == number] for key, column in quotes.items()}, close
        )
    order = np.lexsort((quotes["ask"] - quotes["bid"], quotes["key"]))
    quotes = {name: column[order] for name, column in quotes.items()}
    # Of several quotes of a contract on a day (SPX has two classes of options) the narrowest counts.
    first = np.diff(quotes["key"], prepend=-1) != 0
    if repeated := int((~first).sum()):
        rows.left_out["repeated"] = repeated
    quotes = {name: column[first] for name, column in quotes.items()}
    nearest_quote = _nearest_quotes(quotes, close)
    notes = (
        *about_layouts({file.path.name: file.layout for file in files}),
        _about_quotes(quotes, rows),
        *_about_orders(quotes, nearest_quote[:, :, EXPIRIES.index(settings.expiry_days)], symbol, day),
    )
    return Chains(close, quotes["key"], quotes["bid"], quotes["ask"], nearest_quote, notes)


def _on_bars(rows: QuoteRows, symbol: Ints, day: Ints) -> dict[str, NDArray[Any]]:
    """The quotes with the row of their day's bar, the days to expiry and their key."""
    quotes = rows.arrays()
    bars = symbol * _DAYS + day
    row = np.searchsorted(bars, quotes["symbol"] * _DAYS + quotes["day"])
    # A contract ends at the last close on or before its expiry: monthly ones once expired on Saturdays.
    expiry = quotes["expiry"]
    weekday = (expiry - 1) % 7  # 0 = Monday.
    end = expiry - np.maximum(weekday - 4, 0)
    before = bars[np.maximum(np.searchsorted(bars, quotes["symbol"] * _DAYS + end, side="right") - 1, 0)] % _DAYS
    last = np.array([day[symbol == number].max() for number in np.unique(symbol)])
    end = np.where(end <= last[quotes["symbol"]], before, end)
    days = end - quotes["day"]
    usable = days > 0
    if expired := int((~usable).sum()):
        rows.left_out["expired"] = rows.left_out.get("expired", 0) + expired
    found = {name: column[usable] for name, column in (quotes | {"row": row, "days": days}).items()}
    call = found["call"].astype(np.int64)
    return found | {"key": keys(found["row"], found["days"], call, found["strike"])}


def _check_symbol(settings: MarketSettings, name: str, quotes: dict[str, NDArray[Any]], close: Floats) -> None:
    """Raise UserError if a symbol has no quotes, or those of another price."""
    where = f"chains {shown_path(settings.chains)}"
    if not len(quotes["row"]):
        raise UserError(f"{where}: has no usable quote of {shown(name)} on a day with a bar; leave it out by --symbols")
    told = quotes["price"] > 0
    if not told.any():
        return
    row, price = quotes["row"][told], quotes["price"][told]
    apart = np.abs(price / close[row] - 1.0)
    if np.median(apart) > _DIFFERENT:
        worst = int(apart.argmax())
        when = day_text(quotes["day"][told][worst])
        raise UserError(
            f"{where}: on {when} the price of {shown(name)} is {price[worst]:,.2f}, and "
            f"{close[row[worst]]:,.2f} in --data; give bars that are not adjusted for splits"
        )


def _nearest_quotes(quotes: dict[str, NDArray[Any]], close: Floats) -> Ints:
    """(R, 2, 5, 5) see `Chains`. Contracts without a bid are not opened: nobody could sell them again."""
    found = np.full((len(close), 2, len(EXPIRIES), len(MONEYNESS)), -1, np.int64)
    openable = np.flatnonzero(quotes["bid"] > 0)
    # Keys are sorted by row first.
    rows, starts = np.unique(quotes["row"][openable], return_index=True)
    wanted = np.array(MONEYNESS)
    for row, those in zip(rows, np.split(openable, starts[1:]), strict=True):
        days, call = quotes["days"][those], quotes["call"][those] > 0
        apart = np.abs(quotes["strike"][those, None] / 1000.0 / close[row] - wanted)
        for place, expiry in enumerate(EXPIRIES):
            near = days[np.abs(days - expiry).argmin()]
            if abs(near - expiry) > farthest(expiry):
                continue
            for kind in (0, 1):
                inside = np.flatnonzero((days == near) & (call == (kind == 0)))
                if len(inside):
                    best = apart[inside].argmin(0)
                    close_enough = apart[inside].min(0) < _HALF_STEP
                    found[row, kind, place] = np.where(close_enough, those[inside[best]], -1)
    return found


def _about_quotes(quotes: dict[str, NDArray[Any]], rows: QuoteRows) -> str:
    parts = [f"{count:,} {reason}" for reason, count in rows.left_out.items()]
    left_out = f"; left out: {', '.join(parts)}" if parts else ""
    worthless = int((quotes["bid"] == 0).sum())
    closing = f"; {worthless:,} with bid 0 are for closing alone" if worthless else ""
    days = counted(len(np.unique(quotes["row"])), "day")
    return f"chains: {counted(len(quotes['key']), 'quote')} on {days}{closing}{left_out}"


def _about_orders(quotes: dict[str, NDArray[Any]], ladder: Ints, symbol: Ints, day: Ints) -> list[str]:
    """How often an order finds no contract, and one that is held has no quote; `ladder` (R, 2, 5): what orders mean."""
    at_the_money = (ladder[:, :, MONEYNESS.index(1.0)] >= 0).all(1)
    if not at_the_money.any():
        raise UserError(
            "chains: on no day there is a call and a put near the price and the expiry that orders mean; "
            "give unadjusted bars of the same days, or another --expiry-days"
        )
    notes = []
    if absent := int((ladder < 0).sum()):
        notes.append(
            f"chains: {absent:,} of {ladder.size:,} times no contract is near enough to the strike and expiry of a leg "
            f"(at the money on {int((~at_the_money).sum()):,} of {len(ladder):,} days); such orders are not filled"
        )
    unquoted, held = _unquoted(quotes, np.unique(ladder[ladder >= 0]), symbol, day)
    if unquoted:
        notes.append(
            f"chains: on {unquoted:,} of {held:,} days of the contracts that can be held there is no quote; "
            "they are then priced by the model"
        )
    return notes


def _unquoted(quotes: dict[str, NDArray[Any]], opened: Ints, symbol: Ints, day: Ints) -> tuple[int, int]:
    """Days without a quote, and all days, of contracts from the first day that they can be opened until they expire."""
    row, end = quotes["row"][opened], quotes["day"][opened] + quotes["days"][opened]
    contract = np.stack([symbol[row], end, quotes["call"][opened], quotes["strike"][opened]], 1)
    # Sorted by key, hence by row: the first of each contract is its first day.
    _, first = np.unique(contract, axis=0, return_index=True)
    missing = total = 0
    for place in first:
        begin = row[place]
        rows = np.arange(begin + 1, begin + 1 + quotes["days"][opened[place]])
        rows = rows[rows < len(day)]
        rows = rows[(symbol[rows] == symbol[begin]) & (day[rows] < end[place])]
        _, _, call, strike = contract[place]
        wanted = keys(rows, end[place] - day[rows], call, strike)
        at = np.minimum(np.searchsorted(quotes["key"], wanted), len(quotes["key"]) - 1)
        missing, total = missing + int((quotes["key"][at] != wanted).sum()), total + len(rows)
    return missing, total
