"""Real daily bars for historical accounts: checked, and joined with the volatility that options are quoted with.

R: bars of all symbols together; those of one symbol are contiguous. No value of a bar depends on a later bar. No
torch here: data is checked before any process of a run is started.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lockstep.config.fields import nearest
from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.workloads.trading.market.bars_file import PRICES, BarsFile, read_price, read_volume
from lockstep.workloads.trading.market.chains import Chains, load_chains
from lockstep.workloads.trading.market.data_notes import about_days, about_layouts, about_splits
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.market.table_file import files_of, read_day

Split = Literal["train", "validation"]
WARM_UP = 60
"""Bars before a symbol's first tradable one: the window of past volatility, which is longer than an observation's."""
SHORTEST_EPISODE = 20
TRADING_DAYS = 252.0
"""Bars in a year of real days; simulated markets are open on all 365."""
# Zero, the volatility of a price that never moved, would divide by zero in Black-Scholes; 3 is the most that the
# setting `volatility` allows.
_LOWEST_VOLATILITY, _HIGHEST_VOLATILITY = 0.05, 3.0
_NO_PRICE = ("", "null", "nan", "n/a")
_Bars = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The days (N,) and bars (N, 5) of a symbol."""


@dataclass
class _Series:
    """One symbol's bars as they are read."""

    file: BarsFile
    rows: list[int] = field(default_factory=list)
    days: list[int] = field(default_factory=list)
    bars: list[list[float]] = field(default_factory=list)
    without_prices: list[int] = field(default_factory=list)
    """Days whose row has no prices, as Yahoo writes days on which it knows of none."""


@dataclass(frozen=True)
class History:
    """Checked bars of the chosen symbols and days."""

    symbols: tuple[str, ...]
    symbol: NDArray[np.int64]
    """(R,) which symbol a bar belongs to."""
    day: NDArray[np.int64]
    """(R,) the bar's date, as a day number."""
    bars: NDArray[np.float64]
    """(R, 5) open, high, low, close, volume."""
    volatility: NDArray[np.float64]
    """(R,) yearly volatility that options are quoted with at the bar's close."""
    validation_day: int
    """The first day that is kept from training."""
    notes: tuple[str, ...] = ()
    """What a user should know about the files, a line each."""
    chains: Chains | None = None
    """Recorded option quotes of these days; None = options are priced by the model."""

    def starts(self, split: Split, episode_length: int) -> tuple[NDArray[np.int64], int]:
        """The bars at which an episode may start, and its length: shorter than asked for if there are too few days.

        Training episodes end before the first validation day; validation episodes start on it or later, but their
        look-back window may lie before it.
        """
        bounds = [self._tradable(split, symbol) for symbol in range(len(self.symbols))]
        # All symbols share one length: a symbol with fewer days than that has no episodes.
        length = min(episode_length, max(last - first for first, last in bounds))
        if length < SHORTEST_EPISODE:
            raise UserError(
                f"data: no symbol has {SHORTEST_EPISODE} days to trade for {split}, after {WARM_UP} bars of "
                f"look-back; validation begins on {date.fromordinal(self.validation_day)}; "
                "give more days, or another --validation-part"
            )
        # An episode that starts at row r ends at row r + length, which may be the last one.
        rows = [np.arange(first, last - length + 1) for first, last in bounds if last - first >= length]
        return np.concatenate(rows), length

    def has(self, split: Split) -> bool:
        """Whether there are enough days for a split."""
        bounds = [self._tradable(split, symbol) for symbol in range(len(self.symbols))]
        return max(last - first for first, last in bounds) >= SHORTEST_EPISODE

    def traded(self, split: Split, episode_length: int) -> tuple[str, ...]:
        """The symbols with enough days for an episode; the others are never traded."""
        starts, _ = self.starts(split, episode_length)
        return tuple(self.symbols[number] for number in np.unique(self.symbol[starts]))

    def days(self, split: Split, episode_length: int) -> NDArray[np.int64]:
        """The days that episodes can use, ascending and each once."""
        _, length = self.starts(split, episode_length)
        bounds = [self._tradable(split, symbol) for symbol in range(len(self.symbols))]
        return np.unique(np.concatenate([self.day[a : b + 1] for a, b in bounds if b - a >= length]))

    def independent_episodes(self, split: Split, episode_length: int) -> int:
        """The largest number of episodes that share no day of a symbol: only that many are independent samples."""
        _, length = self.starts(split, episode_length)
        bounds = [self._tradable(split, symbol) for symbol in range(len(self.symbols))]
        return sum(max(last - first, 0) // length for first, last in bounds)

    def _tradable(self, split: Split, symbol: int) -> tuple[int, int]:
        """The first and the last row of a symbol that an episode of this split may use."""
        (rows,) = np.nonzero(self.symbol == symbol)
        early = int(np.searchsorted(self.day[rows], self.validation_day))
        first, last = (0, early - 1) if split == "train" else (early, len(rows) - 1)
        start = int(rows[0])
        return start + max(first, WARM_UP), start + last


def load_history(settings: MarketSettings) -> History:
    """Read and check the files that a configuration names."""
    files = files_of(BarsFile, settings.data)
    # Bars of other symbols are skipped while reading, so a file of the whole market needs no more memory than its part.
    wanted = {*settings.symbol_list, settings.volatility_symbol} if settings.symbol_list else None
    for file in files:
        # Strikes are in the prices of their day: beside recorded chains bars stay as they were traded.
        file.adjusts = not settings.chains
    series = _read(files, wanted)
    volatility = series.pop(settings.volatility_symbol, None)
    if settings.volatility_symbol in settings.symbol_list:
        raise UserError(
            f"symbols {shown(settings.symbols)}: {settings.volatility_symbol} is the volatility, not a price; "
            "leave it out, or name another --volatility-symbol"
        )
    symbols = settings.symbol_list or tuple(sorted(series))
    for symbol in symbols:
        if symbol not in series:
            # Read again for the error message only: `_read` did not keep the other symbols.
            known = sorted({row[1][1] for file in files for row in file} - {settings.volatility_symbol})
            raise _unknown(symbol, known, settings.data)
    if not symbols:
        raise UserError(
            f"data {shown_path(settings.data)}: has no symbol to trade; needed: bars of a symbol besides the volatility"
        )
    chosen = {symbol: _in_range(symbol, series[symbol], settings) for symbol in symbols}
    history = replace(_joined(chosen, volatility, settings), notes=_notes(files, series, chosen))
    if not settings.chains:
        return history
    chains = load_chains(settings, symbols, history.symbol, history.day, history.bars[:, 3])
    return replace(history, chains=chains, notes=(*history.notes, *chains.notes))


def _notes(files: list[BarsFile], series: dict[str, _Series], chosen: dict[str, _Bars]) -> tuple[str, ...]:
    """Columns with other names, missing days and what looks like a split, a line each."""
    days = {symbol: days for symbol, (days, _) in chosen.items()}
    skipped = {symbol: np.array(series[symbol].without_prices, dtype=np.int64) for symbol in chosen}
    layouts = {file.path.name: file.layout for file in files}
    return tuple(filter(None, (*about_layouts(layouts), about_days(days, skipped), about_splits(chosen))))


def _read(files: Iterable[BarsFile], symbols: set[str] | None) -> dict[str, _Series]:
    """The bars of these symbols, or of all, by symbol; every value is checked."""
    by_symbol: dict[str, _Series] = {}
    for file in files:
        for number, (day, symbol, *prices, volume, adjusted) in file:
            if symbol == "":
                raise file.wrong("every bar needs the name of a symbol", number, "symbol")
            if symbols is not None and symbol not in symbols:
                continue
            series = by_symbol.setdefault(symbol, _Series(file))
            if all(str(price).lower() in _NO_PRICE for price in prices):
                series.without_prices.append(read_day(file, number, day))
                continue
            _add_day(series, file, number, symbol, read_day(file, number, day))
            bar = [read_price(file, number, name, price) for name, price in zip(PRICES, prices, strict=True)]
            if bar[1] < bar[2]:
                raise file.wrong(f"high is below the low of {prices[2]}", number, "high", prices[1])
            # Scaled as a whole, so that a split or a dividend moves none of the four against the others.
            adjusts = file.adjusts and adjusted != ""
            scale = read_price(file, number, "adjusted close", adjusted) / bar[3] if adjusts else 1.0
            series.bars.append([*(price * scale for price in bar), read_volume(file, number, volume)])
    return by_symbol


def _add_day(series: _Series, file: BarsFile, row: int, symbol: str, day: int) -> None:
    """Add a day, which must be later than the symbol's last one and in the same file."""
    if file is not series.file:
        raise file.wrong(
            f"{shown(symbol)} already has bars in {series.file.name}; put all bars of a symbol in one file", row
        )
    if series.days and day <= series.days[-1]:
        last = date.fromordinal(series.days[-1])
        twice = day == series.days[-1]
        found = "already has a bar for that day" if twice else f"has a bar for {last}, which is later,"
        rule = "bars must be daily, one a day" if twice else "dates of a symbol must ascend"
        raise file.wrong(
            f"{shown(symbol)} {found} in row {series.rows[-1]}; {rule}",
            row,
            "date",
            str(date.fromordinal(day)),
        )
    series.days.append(day)
    series.rows.append(row)


def _unknown(symbol: str, known: list[str], data: str) -> UserError:
    by_lower_case = {name.lower(): name for name in known}
    near = nearest(symbol, list(by_lower_case))
    hint = f"the nearest is {shown(by_lower_case[near])}; " if near else ""
    # Not all of them: a file may have thousands, and an error is one line.
    some = ", ".join(shown(name) for name in known[:50])
    return UserError(f"symbols {shown(symbol)}: not in {shown_path(data)}; {hint}known: {some}")


def _in_range(symbol: str, series: _Series, settings: MarketSettings) -> _Bars:
    """The days (N,) and bars (N, 5) of a symbol from start_date to end_date."""
    days, bars = np.array(series.days, dtype=np.int64), np.array(series.bars, dtype=np.float64).reshape(-1, 5)
    first = date.fromisoformat(settings.start_date).toordinal() if settings.start_date else 0
    last = date.fromisoformat(settings.end_date).toordinal() if settings.end_date else date.max.toordinal()
    inside = (days >= first) & (days <= last)
    if inside.sum() <= WARM_UP + SHORTEST_EPISODE:
        span = f"{date.fromordinal(days[0])} to {date.fromordinal(days[-1])}" if len(days) else "no day"
        raise UserError(
            f"data {series.file.name}: {shown(symbol)} has {int(inside.sum())} bars "
            f"from {settings.start_date or 'its first day'} to {settings.end_date or 'its last day'} (it has {span}); "
            f"needed: more than {WARM_UP + SHORTEST_EPISODE}; give more days, or leave the symbol out"
        )
    return days[inside], bars[inside]


def _joined(chosen: dict[str, _Bars], index: _Series | None, settings: MarketSettings) -> History:
    """All symbols as one history; `index`: the bars of the volatility symbol, if the data has them."""
    # Split by date, not by bar: otherwise training on one symbol would see days that validate another.
    all_days = np.unique(np.concatenate([days for days, _ in chosen.values()]))
    cut = min(round(len(all_days) * (1.0 - settings.validation_part)), len(all_days))
    if settings.validation_from:
        cut = int(np.searchsorted(all_days, date.fromisoformat(settings.validation_from).toordinal()))
    return History(
        symbols=tuple(chosen),
        symbol=np.concatenate([np.full(len(days), i) for i, (days, _) in enumerate(chosen.values())]),
        day=np.concatenate([days for days, _ in chosen.values()]),
        bars=np.concatenate([bars for _, bars in chosen.values()]),
        volatility=np.concatenate([_volatility(name, days, bars, index) for name, (days, bars) in chosen.items()]),
        validation_day=int(all_days[cut]) if cut < len(all_days) else int(all_days[-1]) + 1,
    )


def _volatility(
    symbol: str, days: NDArray[np.int64], bars: NDArray[np.float64], index: _Series | None
) -> NDArray[np.float64]:
    """The volatility at each close: the index's, raised to the symbol's own level, or that of past returns.

    An index such as VIX describes the whole market. A single stock moves more, so its options would be far too cheap
    if priced with the bare index. The index is therefore multiplied by realised volatility / past index, over the last
    60 bars, if that is above 1.
    """
    returns = np.diff(np.log(bars[:, 3]), prepend=np.log(bars[0, 3]))
    realised = np.sqrt(_trailing(returns**2, WARM_UP) * TRADING_DAYS)
    if index is None:
        return np.clip(realised, _LOWEST_VOLATILITY, _HIGHEST_VOLATILITY)
    levels = np.array(index.bars)[:, 3] / 100.0
    # The index's last close on or before each day: the symbol may trade on days that the index does not have.
    place = np.searchsorted(index.days, days, side="right") - 1
    if place[0] < 0:
        raise UserError(
            f"data {index.file.name}: the volatility begins on {date.fromordinal(index.days[0])}, after the first bar "
            f"of {shown(symbol)} on {date.fromordinal(int(days[0]))}; give a later --start-date"
        )
    level = levels[place]
    own_level = np.clip(realised / _trailing(level, WARM_UP), 1.0, 5.0)
    return np.clip(level * own_level, _LOWEST_VOLATILITY, _HIGHEST_VOLATILITY)


def _trailing(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """The mean of the last `width` values up to and including each one; of fewer at the beginning."""
    # Differences of cumulative sums: one pass for any width.
    total = np.concatenate(([0.0], np.cumsum(values)))
    end = np.arange(1, len(values) + 1)
    begin = np.maximum(end - width, 0)
    return (total[end] - total[begin]) / (end - begin)
