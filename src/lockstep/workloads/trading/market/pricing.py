"""Black-Scholes prices and greeks of European options on tensors of any shape; use float64 for money.

The greeks hold the volatility fixed, although a skewed volatility moves with the price. Days are calendar days, 365 a
year.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DAYS_PER_YEAR = 365.0
_ROOT_HALF = math.sqrt(0.5)
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
_LOWEST, _HIGHEST = 0.01, 5.0  # Of implied volatilities.


@dataclass
class Sheet:
    """Prices and greeks of the call and the put of each strike; gamma and vega are the same for both."""

    call: Tensor
    """Price of the call, for one unit of the underlying."""
    put: Tensor
    """Price of the put."""
    call_delta: Tensor
    """Change of the call's price for each dollar of the underlying; the put's is one less."""
    gamma: Tensor
    """Change of either delta for each dollar of the underlying."""
    call_theta: Tensor
    """Change of the call's price in one day."""
    put_theta: Tensor
    """Change of the put's price in one day."""
    vega: Tensor
    """Change of either price for each percentage point of volatility."""
    call_rho: Tensor
    """Change of the call's price for each percentage point of interest."""
    put_rho: Tensor
    """Change of the put's price for each percentage point of interest."""


def skewed(volatility: Tensor, price_over_strike: Tensor, skew: float) -> Tensor:
    """The volatility that a strike is quoted with: higher the farther it is from the price."""
    return volatility + skew * (1.0 - price_over_strike).abs()


def black_scholes(
    spot: Tensor | float, strike: Tensor, days: Tensor, volatility: Tensor, interest: Tensor | float
) -> Sheet:
    """Price calls and puts; an expired option is worth its exercise value."""
    # Expired options are priced with a tiny time left, to avoid dividing by zero, and overwritten at the end.
    years = days.clamp(min=1e-6) / DAYS_PER_YEAR
    root = years.sqrt()
    spread = volatility * root
    # The textbook's d1 = (log(S / K) + (r + v^2 / 2) T) / (v sqrt(T)).
    d1 = torch.log(spot / strike) / spread + (interest / volatility * root + 0.5 * spread)
    d2 = d1 - spread
    # The normal distribution function, of both in one call: the cost of a step is the number of its operations.
    below = torch.erf(torch.stack((d1, d2)) * _ROOT_HALF).add_(1.0).mul_(0.5)
    delta, exercised = below[0], below[1]
    density = torch.exp(-0.5 * d1 * d1) / _ROOT_TWO_PI
    present = strike * torch.exp(-interest * years)
    call = spot * delta - present * exercised
    # Put-call parity.
    put = call - spot + present
    slope = spot * density
    decay = slope * volatility / (2.0 * root)
    owed = interest * present
    alive = days > 0
    return Sheet(
        call=torch.where(alive, call, (spot - strike).clamp(min=0.0)),
        put=torch.where(alive, put, (strike - spot).clamp(min=0.0)),
        call_delta=delta,
        gamma=density / (spot * spread),
        call_theta=-(decay + owed * exercised) / DAYS_PER_YEAR,
        put_theta=-(decay - owed * (1.0 - exercised)) / DAYS_PER_YEAR,
        vega=slope * root / 100.0,
        call_rho=present * years * exercised / 100.0,
        put_rho=present * years * (exercised - 1.0) / 100.0,
    )


def implied_volatility(
    price: Tensor, spot: Tensor, strike: Tensor, days: Tensor, call: Tensor, interest: float
) -> Tensor:
    """The volatility with which `black_scholes` gives a price; the end of the range if no volatility in it does."""
    low, high = torch.full_like(price, _LOWEST), torch.full_like(price, _HIGHEST)
    # Bisection: prices rise with the volatility. After 30 halvings it is known to 8 decimals.
    for _ in range(30):
        middle = 0.5 * (low + high)
        sheet = black_scholes(spot, strike, days, middle, interest)
        below = torch.where(call, sheet.call, sheet.put) < price
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)
