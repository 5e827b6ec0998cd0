"""The numbers reported at the end of an episode. E: accounts."""

import torch
from torch import Tensor

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.market.market import Market
from lockstep.workloads.trading.market.settings import MarketSettings

INFO = {
    "profit": "account value less initial capital, dollars; open positions at their mark",
    "value": "account value, dollars",
    "closed_trades": "positions closed, expired or assigned",
    "winning_trades": "those of them that earned money after all costs",
    "win_rate": "winning / closed, 0 where none closed",
    "open_positions": "positions open at the end",
    "turnover": "premiums of everything bought and sold / initial capital",
    "exposure": "mean of |delta x price| / account value",
    "costs": "half-spreads and commissions, dollars",
    "drawdown": "deepest fall from a peak of the value, as a part of the peak",
    "sharpe": "mean / deviation of the value's daily changes, for a year; 0 where it never changed",
    "sortino": "mean / root of the mean square of its falls, for a year; 0 where it never fell",
    "risk": "deviation of the value's daily changes, dollars",
    "underlying": "the price's growth over the episode, 0.1 for 10 %",
    "underlying_risk": "deviation of the price's daily log changes",
    "bankrupt": "1 where the account was closed because its value fell below `bankruptcy`",
    "historical": "1 where it traded the data's prices",
}
"""The entries of `Transition.info`, (E,) float32 each; meant for accounts whose episode has just ended."""


def statement(settings: MarketSettings, account: Account, market: Market, bankrupt: Tensor) -> dict[str, Tensor]:
    """The numbers of INFO for the episodes so far."""
    capital = settings.initial_capital
    closed, won, costs, traded, exposure, change, squares, falls, moves, move_squares, days = account.tally.unbind(1)
    # Not the account's steps: a run's first episodes are staggered, so they start at a random step.
    steps = days.clamp(min=1.0)
    mean = change / steps
    risk = _deviation(change, squares, steps)
    year = market.days_per_year.sqrt()
    numbers = {
        "profit": account.value - capital,
        "value": account.value,
        "closed_trades": closed,
        "winning_trades": won,
        "win_rate": won / closed.clamp(min=1.0),
        "open_positions": account.positions.open.sum(1),
        "turnover": traded / capital,
        "exposure": exposure / steps,
        "costs": costs,
        "drawdown": account.drawdown,
        "sharpe": _ratio(mean, risk) * year,
        "sortino": _ratio(mean, (falls / steps).sqrt()) * year,
        "risk": risk,
        "underlying": market.spot / market.first_spot - 1.0,
        "underlying_risk": _deviation(moves, move_squares, steps),
        "bankrupt": bankrupt,
        "historical": market.historical,
    }
    columns = torch.stack([number.double() for number in numbers.values()]).float()
    return dict(zip(numbers, columns.unbind(), strict=True))


def _deviation(total: Tensor, squares: Tensor, steps: Tensor) -> Tensor:
    mean = total / steps
    return (squares / steps - mean * mean).clamp(min=0.0).sqrt()


def _ratio(mean: Tensor, deviation: Tensor) -> Tensor:
    return torch.where(deviation > 0, mean / deviation.clamp(min=1e-12), 0.0)
