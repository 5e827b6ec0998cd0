"""Open positions of every account, and what they are worth. E: accounts, P: places for positions, L: 4 legs.

A contract is for 100 of the underlying. Quantities are contracts, negative where sold; a place without a position, and
a leg that a position does not have, has the quantity 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.workloads.trading.actions import MAX_LEGS
from lockstep.workloads.trading.chain import half_spread
from lockstep.workloads.trading.market_config import MarketConfig
from lockstep.workloads.trading.paths import Term
from lockstep.workloads.trading.pricing import black_scholes, skewed

MULTIPLIER = 100.0


@dataclass
class Ticket:
    """A position to be opened in each account, (E,) or (E, L); contracts 0 where there is none."""

    contracts: Tensor
    side: Tensor
    strike: Tensor
    call: Tensor
    paid: Tensor
    naked: Tensor
    wing: Tensor


class Positions:
    """The positions, and their values as of the last `mark`; all stay in the same tensors for good."""

    def __init__(self, config: MarketConfig, count: int, device: torch.device, term: Term | None = None) -> None:
        self._config, self._term = config, term
        places = config.max_positions

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(count, *shape, dtype=torch.float64, device=device)

        self.open = torch.zeros(count, places, dtype=torch.bool, device=device)
        """(E, P) whether there is a position."""
        self.strike = zeros(places, MAX_LEGS) + 1.0
        """(E, P, L) dollars."""
        self.quantity = zeros(places, MAX_LEGS)
        """(E, P, L) contracts, below 0 where sold."""
        self.call = torch.zeros(count, places, MAX_LEGS, dtype=torch.bool, device=device)
        """(E, P, L) a call, not a put."""
        self.days, self.paid = zeros(places), zeros(places)
        """(E, P) calendar days to expiry; dollars paid when opened, costs included, below 0 where received."""
        self._numbers = zeros(6, places)
        self.naked, self.wing, self.worth, self.margin, self.exit_cost, self.gross = self._numbers.unbind(1)
        """(E, P) contracts sold uncovered, and dollars: what a covered short can lose, the mark (at mid prices), the
        margin tied up, what closing would cost, |mark| of all legs."""
        self.greeks = zeros(5)
        """(E, 5) delta, gamma, theta, vega, rho of all positions together, in the units of `pricing.Sheet`."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on; the rest follows from `mark`."""
        names = ("open", "strike", "quantity", "call", "days", "paid", "naked", "wing")
        return {name: getattr(self, name) for name in names}

    def add(self, ticket: Ticket) -> None:
        """Put each account's new position into its first free place."""
        free = ~self.open
        place = free & (free.cumsum(1) == 1) & (ticket.contracts > 0)[:, None]
        legs = place[:, :, None]
        quantity = ticket.contracts[:, None] * ticket.side
        self.open |= place
        self.strike.copy_(torch.where(legs, ticket.strike[:, None], self.strike))
        self.quantity.copy_(torch.where(legs, quantity[:, None], self.quantity))
        self.call.copy_(torch.where(legs, ticket.call[:, None], self.call))
        self.days.masked_fill_(place, float(self._config.expiry_days))
        for tensor, value in ((self.paid, ticket.paid), (self.naked, ticket.naked), (self.wing, ticket.wing)):
            tensor.copy_(torch.where(place, value[:, None], tensor))

    def remove(self, gone: Tensor) -> None:
        """Clear the places in the mask (E, P)."""
        self.open &= ~gone
        self.quantity.masked_fill_(gone[:, :, None], 0.0)
        self._numbers.masked_fill_(gone[:, None], 0.0)

    def mark(self, spot: Tensor, volatility: Tensor) -> None:
        """Price every leg at spot and volatility (E,); what has expired is worth its exercise."""
        config = self._config
        price_over_strike = spot[:, None, None] / self.strike
        base = volatility[:, None, None]
        if self._term:
            base = self._term.quoted(base, self.days[:, :, None])
        sigma = skewed(base, price_over_strike, config.skew)
        sheet = black_scholes(spot[:, None, None], self.strike, self.days[:, :, None], sigma, config.interest)
        price = torch.where(self.call, sheet.call, sheet.put)
        size = MULTIPLIER * self.quantity
        contracts = self.quantity.abs()
        worth = size * price
        spread = half_spread(config, price_over_strike)
        self.worth.copy_(worth.sum(2))
        self.gross.copy_(worth.abs().sum(2))
        self.exit_cost.copy_((worth.abs() * spread + config.commission * contracts).sum(2))
        self.margin.copy_(self.naked * self._naked_margin(spot, price[:, :, 0]) + self.wing)
        delta = torch.where(self.call, sheet.call_delta, sheet.call_delta - 1.0)
        theta = torch.where(self.call, sheet.call_theta, sheet.put_theta)
        rho = torch.where(self.call, sheet.call_rho, sheet.put_rho)
        alive = size * (self.days > 0)[:, :, None]
        greeks = (delta, sheet.gamma, theta, sheet.vega, rho)
        self.greeks.copy_(torch.stack([(alive * greek).sum((1, 2)) for greek in greeks], dim=1))

    def _naked_margin(self, spot: Tensor, price: Tensor) -> Tensor:
        """(E, P) dollars that one contract sold uncovered, the first leg, ties up."""
        strike = self.strike[:, :, 0]
        above = spot[:, None] - strike
        out_of_the_money = torch.where(self.call[:, :, 0], -above, above).clamp(min=0.0)
        return naked_margin(self._config, spot[:, None], out_of_the_money, price)


def naked_margin(config: MarketConfig, spot: Tensor, out_of_the_money: Tensor, price: Tensor) -> Tensor:
    """Dollars for one contract: its price, and `margin` of the underlying less what it is out of the money, or half."""
    rest = torch.maximum(config.margin * spot - out_of_the_money, 0.5 * config.margin * spot)
    return MULTIPLIER * (price + rest)
