"""The results reported at the end of an episode. E: accounts."""

import torch
from torch import Tensor

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.market.market import Market
from lockstep.workloads.trading.market.settings import MarketSettings

INFO = {
    "profit": "account value less initial capital, dollars; open positions at their mark",
    "value": "account value, dollars",
    "closed_trades": "positions closed, expired or assigned",
    "winning_trades": "closed positions that earned money after all costs",
    "win_rate": "winning / closed trades; 0 if none was closed",
    "open_positions": "positions open at the end",
    "turnover": "premiums of everything bought and sold / initial capital",
    "exposure": "mean of |delta x price| / account value",
    "costs": "half-spreads and commissions, dollars",
    "drawdown": "largest fall of the value from a peak, as a fraction of the peak",
    "sharpe": "mean / standard deviation of the value's daily changes, annualised; NaN if it hardly changed",
    "sortino": "mean daily change / root mean square of the falls, annualised; NaN if it hardly fell",
    "risk": "standard deviation of the value's daily changes, dollars",
    "underlying": "the price's growth over the episode, 0.1 for 10 %",
    "underlying_risk": "standard deviation of the price's daily log changes",
    "bankrupt": "1 if the account was closed because its value fell to `bankruptcy` or below",
    "historical": "1 if the account traded the data's prices",
}
"""The entries of `Transition.info`, (E,) float32 each; meant for accounts whose episode has just ended."""
LEAST_RISK = 1e-4
"""Fraction of the initial capital that an account must move by a day to have a ratio of profit to risk. Less is no risk
to speak of, and dividing by it makes numbers of which one outweighs all others in a mean."""


def statement(settings: MarketSettings, account: Account, market: Market, bankrupt: Tensor) -> dict[str, Tensor]:
    """The results named in INFO, for the episodes so far."""
    capital = settings.initial_capital
    closed, won, costs, traded, exposure, change, squares, falls, moves, move_squares, days = account.tally.unbind(1)
    # Not `account.steps`: a run's first episodes are staggered, so they start at a random step.
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
        "sharpe": _ratio(mean, risk, capital) * year,
        "sortino": _ratio(mean, (falls / steps).sqrt(), capital) * year,
        "risk": risk,
        "underlying": market.spot / market.first_spot - 1.0,
        "underlying_risk": _deviation(moves, move_squares, steps),
        "bankrupt": bankrupt,
        "historical": market.historical,
    }
    # Converted together: the cost of a step is the number of its operations.
    columns = torch.stack([number.double() for number in numbers.values()]).float()
    return dict(zip(numbers, columns.unbind(), strict=True))


def _deviation(total: Tensor, squares: Tensor, steps: Tensor) -> Tensor:
    mean = total / steps
    # Rounding can make the variance of a constant slightly negative.
    return (squares / steps - mean * mean).clamp(min=0.0).sqrt()


def _ratio(mean: Tensor, risk: Tensor, capital: float) -> Tensor:
    return torch.where(risk > LEAST_RISK * capital, mean / risk, torch.nan)
