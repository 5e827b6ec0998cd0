"""Real daily bars, checked and joined with a volatility: what historical accounts trade. No torch here.

The bars of a symbol are contiguous; R: bars of all symbols together. No value of a bar depends on a later bar.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lockstep.config.fields import nearest
from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.workloads.trading.market.bars_file import PRICES, BarsFile, read_day, read_price, read_volume
from lockstep.workloads.trading.market.settings import MarketSettings

Split = Literal["train", "validation"]
WARM_UP = 60
"""Bars before a symbol's first tradable one, needed for indicators and past volatility."""
SHORTEST_EPISODE = 20
TRADING_DAYS = 252.0


@dataclass
class _Series:
    """One symbol's bars as they are read."""

    file: BarsFile
    rows: list[int] = field(default_factory=list)
    days: list[int] = field(default_factory=list)
    bars: list[list[float]] = field(default_factory=list)


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

    def starts(self, split: Split, episode_length: int) -> tuple[NDArray[np.int64], int]:
        """The bars at which an episode may start, and its length: shorter than asked for if there are too few days.

        Training episodes end before the first validation day; validation episodes start on it or later, but their
        look-back window may lie before it.
        """
        bounds = [self._tradable(split, symbol) for symbol in range(len(self.symbols))]
        length = min(episode_length, max(last - first for first, last in bounds))
        if length < SHORTEST_EPISODE:
            raise UserError(
                f"data: no symbol has {SHORTEST_EPISODE} days to trade for {split}, after {WARM_UP} bars of "
                f"look-back; validation begins on {date.fromordinal(self.validation_day)}; "
                "give more days, or another --validation-part"
            )
        rows = [np.arange(first, last - length + 1) for first, last in bounds if last - first >= length]
        return np.concatenate(rows), length

    def apart(self, split: Split, episode_length: int) -> int:
        """The most episodes that share no day of a symbol: only that many are independent samples."""
        _, length = self.starts(split, episode_length)
        bounds = [self._tradable(split, symbol) for symbol in range(len(self.symbols))]
        return sum(max(last - first, 0) // length for first, last in bounds)

    def _tradable(self, split: Split, symbol: int) -> tuple[int, int]:
        """The first and the last tradable row of a symbol."""
        (rows,) = np.nonzero(self.symbol == symbol)
        early = int(np.searchsorted(self.day[rows], self.validation_day))
        first, last = (0, early - 1) if split == "train" else (early, len(rows) - 1)
        start = int(rows[0])
        return start + max(first, WARM_UP), start + last


def load_history(settings: MarketSettings) -> History:
    """Read and check the files that a configuration names."""
    files = [BarsFile(name.strip()) for name in settings.data.split(",") if name.strip()]
    if not files:
        raise UserError(f"data {shown(settings.data)}: names no file; give the path of a CSV or Parquet file")
    series = _read(files, {*settings.symbol_list, settings.volatility_symbol} if settings.symbol_list else None)
    volatility = series.pop(settings.volatility_symbol, None)
    if settings.volatility_symbol in settings.symbol_list:
        raise UserError(
            f"symbols {shown(settings.symbols)}: {settings.volatility_symbol} is the volatility, not a price"
        )
    symbols = settings.symbol_list or tuple(sorted(series))
    for symbol in symbols:
        if symbol not in series:
            known = sorted({row[1][1] for file in files for row in file} - {settings.volatility_symbol})
            raise _unknown(symbol, known, settings.data)
    if not symbols:
        raise UserError(f"data {shown_path(settings.data)}: has no symbol to trade")
    chosen = {symbol: _in_range(symbol, series[symbol], settings) for symbol in symbols}
    return _joined(chosen, volatility, settings)


def _read(files: Iterable[BarsFile], symbols: set[str] | None) -> dict[str, _Series]:
    series: dict[str, _Series] = {}
    for file in files:
        for number, (day, symbol, *prices, volume) in file:
            if symbol == "":
                raise file.wrong("a bar needs the name of a symbol", number, "symbol")
            if symbols is not None and symbol not in symbols:
                continue
            one = series.setdefault(symbol, _Series(file))
            _check_order(one, file, number, symbol, read_day(file, number, day))
            bar = [read_price(file, number, name, price) for name, price in zip(PRICES, prices, strict=True)]
            if bar[1] < bar[2]:
                raise file.wrong(f"high is below the low of {prices[2]}", number, "high", prices[1])
            one.bars.append([*bar, read_volume(file, number, volume)])
    return series


def _check_order(one: _Series, file: BarsFile, row: int, symbol: str, day: int) -> None:
    if file is not one.file:
        raise file.wrong(f"{shown(symbol)} has bars in {one.file.name} already; a symbol belongs in one file", row)
    if one.days and day <= one.days[-1]:
        place = "there already" if day == one.days[-1] else f"after {date.fromordinal(one.days[-1])}"
        raise file.wrong(
            f"{shown(symbol)} of that day is {place}, in row {one.rows[-1]}; dates of a symbol must rise",
            row,
            "date",
            str(date.fromordinal(day)),
        )
    one.days.append(day)
    one.rows.append(row)


def _unknown(symbol: str, known: list[str], data: str) -> UserError:
    small = {name.lower(): name for name in known}
    near = nearest(symbol, list(small))
    hint = f"the nearest is {shown(small[near])}; " if near else ""
    some = ", ".join(shown(name) for name in known[:50])
    return UserError(f"symbols {shown(symbol)}: not in {shown_path(data)}; {hint}there are: {some}")


def _in_range(symbol: str, one: _Series, settings: MarketSettings) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    days, bars = np.array(one.days, dtype=np.int64), np.array(one.bars, dtype=np.float64).reshape(-1, 5)
    first = date.fromisoformat(settings.start_date).toordinal() if settings.start_date else 0
    last = date.fromisoformat(settings.end_date).toordinal() if settings.end_date else date.max.toordinal()
    inside = (days >= first) & (days <= last)
    if inside.sum() <= WARM_UP + SHORTEST_EPISODE:
        span = f"{date.fromordinal(days[0])} to {date.fromordinal(days[-1])}" if len(days) else "no day"
        raise UserError(
            f"data {one.file.name}: {shown(symbol)} has {int(inside.sum())} bars "
            f"from {settings.start_date or 'its first'} to {settings.end_date or 'its last'} (it has {span}); "
            f"needed: more than {WARM_UP + SHORTEST_EPISODE}"
        )
    return days[inside], bars[inside]


def _joined(
    chosen: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]], index: _Series | None, settings: MarketSettings
) -> History:
    everyday = np.unique(np.concatenate([days for days, _ in chosen.values()]))
    cut = min(round(len(everyday) * (1.0 - settings.validation_part)), len(everyday))
    return History(
        symbols=tuple(chosen),
        symbol=np.concatenate([np.full(len(days), i) for i, (days, _) in enumerate(chosen.values())]),
        day=np.concatenate([days for days, _ in chosen.values()]),
        bars=np.concatenate([bars for _, bars in chosen.values()]),
        volatility=np.concatenate([_volatility(name, *one, index) for name, one in chosen.items()]),
        validation_day=int(everyday[cut]) if cut < len(everyday) else int(everyday[-1]) + 1,
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
        return np.clip(realised, 0.05, 3.0)
    levels = np.array(index.bars)[:, 3] / 100.0
    place = np.searchsorted(index.days, days, side="right") - 1
    if place[0] < 0:
        raise UserError(
            f"data {index.file.name}: the volatility begins on {date.fromordinal(index.days[0])}, after the first bar "
            f"of {shown(symbol)} on {date.fromordinal(int(days[0]))}; give a later --start-date"
        )
    level = levels[place]
    return np.clip(level * np.clip(realised / _trailing(level, WARM_UP), 1.0, 5.0), 0.05, 3.0)


def _trailing(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """The mean of the last `width` values up to and including each one; of fewer at the beginning."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    end = np.arange(1, len(values) + 1)
    begin = np.maximum(end - width, 0)
    return (total[end] - total[begin]) / (end - begin)
