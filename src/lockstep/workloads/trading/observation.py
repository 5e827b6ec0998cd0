"""The observation: the guide's parts concatenated into one flat vector, each number about -1 to 1. E: accounts.

It shows neither the price level nor anything before the last 20 bars: a policy that needs more must have a memory.
"""

import torch
from torch import Tensor

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.market import chain, indicators
from lockstep.workloads.trading.market.chain import Chain
from lockstep.workloads.trading.market.history import History
from lockstep.workloads.trading.market.indicators import CLOSE, OPEN, VOLUME
from lockstep.workloads.trading.market.market import Market
from lockstep.workloads.trading.market.settings import MarketSettings

SIZES = {
    "price_history": indicators.BARS * 5,
    "technical_indicators": len(indicators.NAMES),
    "options_chain": chain.ROWS * chain.COLUMNS,
    "portfolio_state": 5,
    "greeks_summary": 5,
}
"""The size of each part, in the order of the observation."""
LIMIT = 10.0
"""Observations are clamped to -LIMIT..LIMIT, which is also the range of the Gymnasium spaces."""


def parts(symbols: int) -> dict[str, slice]:
    """The slice of each part in the flat observation; `symbol_encoding` only if there are symbols."""
    sizes = SIZES | ({"symbol_encoding": symbols} if symbols else {})
    places, start = {}, 0
    for name, size in sizes.items():
        places[name] = slice(start, start + size)
        start += size
    return places


def symbols_told(settings: MarketSettings, history: History | None) -> int:
    """How many symbols an observation tells apart; 0 if it does not say which one is traded."""
    return len(history.symbols) if history and settings.encode_symbols else 0


def split(observation: Tensor, symbols: int) -> dict[str, Tensor]:
    """The parts of a flat (..., 430 + symbols) observation by name; views."""
    return {name: observation[..., place] for name, place in parts(symbols).items()}


def observe(
    settings: MarketSettings, market: Market, quotes: Chain, account: Account, limit: Tensor, symbols: int
) -> Tensor:
    """(E, 430 + symbols) float32; limit (E,): steps of the episode."""
    bars = market.bars
    close = bars[:, CLOSE, -1]
    # + 1, because a bar of the data may have no volume.
    volume = bars[:, VOLUME] + 1.0
    volume_ratio = volume / volume.mean(1, keepdim=True)
    # Divided by the last close before the logarithm, so that float32 keeps the precision of small changes.
    logs = torch.log(bars[:, :VOLUME] / close[:, None, None])
    # 10 and 0.5 bring daily moves and volumes to about -1..1; `model.forecast_target` relies on them.
    history = torch.cat((10.0 * logs, 0.5 * volume_ratio.log()[:, None]), dim=1).transpose(1, 2)
    rows = quotes.rows(volume_ratio[:, -1], bars[:, OPEN, -1] / close - 1.0)
    flat = [
        history.flatten(1),
        market.indicators(logs[:, CLOSE]),
        rows.flatten(1),
        _portfolio(settings, account, limit),
        _greeks(settings, account, market.spot),
    ]
    if symbols:
        # One-hot; all zeros for simulated accounts, which have no symbol.
        encoding = torch.arange(symbols, device=close.device) == market.symbol()[:, None]
        flat.append((encoding & market.historical[:, None]).float())
    return torch.cat(flat, dim=1).clamp_(-LIMIT, LIMIT)


def _portfolio(settings: MarketSettings, account: Account, limit: Tensor) -> Tensor:
    """(E, 5) cash, number of positions, value, unrealised profit and step, relative to the capital or the maximum."""
    positions, capital = account.positions, settings.initial_capital
    unrealised = torch.where(positions.open, positions.worth - positions.paid, 0.0).sum(1)
    columns = (
        account.cash / capital - 1.0,
        positions.open.sum(1) / settings.max_positions,
        account.value / capital - 1.0,
        10.0 * unrealised / capital,
        account.steps / limit,
    )
    return torch.stack(columns, dim=1).float()


def _greeks(settings: MarketSettings, account: Account, spot: Tensor) -> Tensor:
    """(E, 5) delta and gamma for a move of 1 %, theta for a day, vega and rho for a percentage point, per capital."""
    delta, gamma, theta, vega, rho = account.positions.greeks.unbind(1)
    percent = 0.01 * spot
    columns = (delta * percent, 10.0 * gamma * percent * percent, 10.0 * theta, 10.0 * vega, 10.0 * rho)
    # In percent of the capital; 10 above makes the small ones comparable to delta.
    return (torch.stack(columns, dim=1) * (100.0 / settings.initial_capital)).float()
