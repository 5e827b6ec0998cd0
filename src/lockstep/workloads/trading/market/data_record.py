"""What a run keeps about the bars it is trained on, and what follows from that for other days. No torch here."""

import hashlib
from collections.abc import Mapping
from datetime import date

import numpy as np
from numpy.typing import NDArray

from lockstep.workloads.trading.market.chains import Chains
from lockstep.workloads.trading.market.history import History
from lockstep.workloads.trading.market.settings import MarketSettings

_FROM, _TO = "trained_from", "trained_to"
ANY_DAY = str(date.min)
"""As the first day that is kept from training: all of them."""


def data_record(history: History, episode_length: int, lanes: str) -> dict[str, str]:
    """Facts that a run keeps: a resume with other ones is refused. `lanes`: those that trade the data."""
    # Data that a trained model is used on may have no days of training.
    trains = lanes != "none" and history.has("train")
    days = history.days("train", episode_length) if trains else history.day[:0]
    trained = (str(date.fromordinal(int(day))) for day in days[[0, -1]]) if len(days) else ("", "")
    return {
        "symbols": ", ".join(history.symbols),
        "days": " to ".join(str(date.fromordinal(int(day))) for day in (history.day.min(), history.day.max())),
        **dict(zip((_FROM, _TO), trained, strict=True)),
        "historical_lanes": lanes,
        "digest": digest(history),
        **({"chains": chains_digest(history.chains)} if history.chains else {}),
    }


def digest(history: History) -> str:
    """Identifies symbols, days, bars and volatility."""
    found = hashlib.sha256(repr((history.symbols, history.validation_day)).encode())
    for column in (history.symbol, history.day, history.bars, history.volatility):
        found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()[:16]


def chains_digest(chains: Chains) -> str:
    """Identifies the quotes."""
    found = hashlib.sha256()
    for column in (chains.key, chains.bid, chains.ask, chains.nearest_quote):
        found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()[:16]


def record_of(settings: MarketSettings, kept: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The record of a model, given the one that was `kept` with it.

    Models that never saw data keep none. Nor do they know symbols, so that they are used without an encoding of them;
    a model that was trained on data without that encoding has a record.
    """
    return {_FROM: ""} if kept is None and not settings.encode_symbols else kept


def first_unseen_day(record: Mapping[str, str] | None) -> str:
    """The day after the last that a model with this record was trained on; ANY_DAY if that is not known, or none."""
    span = trained_days(record)
    return str(date.fromordinal(span[1] + 1)) if span and span[0] <= span[1] else ANY_DAY


def how_many_trained_on(days: NDArray[np.int64], record: Mapping[str, str] | None) -> str:
    """How many of these days a model with this record was trained on, in words; None = it has no record.

    By date: prices of other symbols on the same days are no unseen days either.
    """
    span = trained_days(record)
    if span is None:
        return "and the model does not say which days it was trained on"
    seen = int(((days >= span[0]) & (days <= span[1])).sum())
    share = {0: "none", len(days): "all"}.get(seen, f"{seen:,} of {len(days):,}")
    return f"{share} of them trained on"


def trained_days(record: Mapping[str, str] | None) -> tuple[int, int] | None:
    """The first and the last day; the first is the later one if there are none."""
    if record is None:
        return None
    if record.get(_FROM) == "":
        return 1, 0
    try:
        # A record may come from anybody.
        first, last = (date.fromisoformat(record[name]).toordinal() for name in (_FROM, _TO))
    except (KeyError, TypeError, ValueError):
        return None
    return first, last
