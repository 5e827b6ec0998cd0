"""Open positions of every account, and their value. E: accounts, P: slots for positions, L: 4 legs.

Quantities are contracts of the usual size, negative if sold; empty slots and missing legs have quantity 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.workloads.trading.account.actions import MAX_LEGS
from lockstep.workloads.trading.market.chain import half_spread
from lockstep.workloads.trading.market.quotes import Quotes
from lockstep.workloads.trading.market.settings import MarketSettings

MULTIPLIER = 100.0
"""Units of the underlying that a contract is for."""


@dataclass
class Ticket:
    """A position to open in each account; see the attributes of `Positions`."""

    contracts: Tensor
    """(E,) of each leg; 0 = open nothing."""
    size: Tensor | float
    """(E,) of a contract; 1 = the usual one, see `Quotes.contract_size`."""
    side: Tensor
    """(E, L) 1.0 bought, -1.0 sold, 0.0 no leg."""
    strike: Tensor
    """(E, L)"""
    price_at_listing: Tensor
    """(E,)"""
    days: Tensor
    """(E,)"""
    call: Tensor
    """(E, L)"""
    paid: Tensor
    """(E,)"""
    naked: Tensor
    """(E,)"""
    wing: Tensor
    """(E,)"""


class Positions:
    """The positions, and their values as of the last `mark`; all updated in place, for captured CUDA graphs."""

    def __init__(
        self,
        settings: MarketSettings,
        count: int,
        device: torch.device,
        quotes: Quotes,
        sparse: bool = False,
    ) -> None:
        """`sparse`: price only existing legs, with the same results.

        It saves work, because most slots are empty. But counting the legs makes the host wait for a GPU, and a CUDA
        graph cannot capture it.
        """
        self._settings, self._quotes, self._sparse = settings, quotes, sparse
        places = settings.max_positions

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(count, *shape, dtype=torch.float64, device=device)

        self.open = torch.zeros(count, places, dtype=torch.bool, device=device)
        """(E, P) whether there is a position."""
        # 1, not 0: missing legs are priced, too, and their strike is a divisor.
        self.strike = zeros(places, MAX_LEGS) + 1.0
        """(E, P, L) dollars."""
        self.price_at_listing = zeros(places) + 1.0
        """(E, P) the underlying's price when the position was opened, which is when its options were listed."""
        self.quantity = zeros(places, MAX_LEGS)
        """(E, P, L) contracts of the usual size, negative if sold."""
        self.call = torch.zeros(count, places, MAX_LEGS, dtype=torch.bool, device=device)
        """(E, P, L) True for a call, False for a put."""
        self.days, self.paid = zeros(places), zeros(places)
        """(E, P) calendar days to expiry; dollars paid when opened, costs included, negative if received."""
        # Views of one tensor, so that `remove` clears them with one operation.
        self._numbers = zeros(6, places)
        self.naked, self.wing, self.worth, self.margin, self.exit_cost, self.gross = self._numbers.unbind(1)
        """(E, P) contracts sold uncovered; and in dollars: the largest loss of a covered short, the mark (at mid
        prices), the margin tied up, the cost of closing, and |mark| summed over the legs."""
        self.greeks = zeros(5)
        """(E, 5) delta, gamma, theta, vega, rho of all positions together, in the units of `pricing.Sheet`."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to continue; `mark` computes the rest. The names are keys of a run's checkpoints."""
        names = ["open", "strike", "quantity", "call", "days", "paid", "naked", "wing"]
        listed = {"listed": self.price_at_listing} if self._quotes.remember_listing else {}
        return {name: getattr(self, name) for name in names} | listed

    def add(self, ticket: Ticket) -> None:
        """Put each account's new position into its first free slot."""
        # The first free slot is where the running count of free slots is 1; no slot if nothing is ordered.
        free = ~self.open
        place = free & (free.cumsum(1) == 1) & (ticket.contracts > 0)[:, None]
        legs = place[:, :, None]
        quantity = (ticket.contracts * ticket.size)[:, None] * ticket.side
        self.open |= place
        self.strike.copy_(torch.where(legs, ticket.strike[:, None], self.strike))
        self.quantity.copy_(torch.where(legs, quantity[:, None], self.quantity))
        self.call.copy_(torch.where(legs, ticket.call[:, None], self.call))
        numbers = (
            (self.days, ticket.days),
            (self.paid, ticket.paid),
            (self.naked, ticket.naked),
            (self.wing, ticket.wing),
            (self.price_at_listing, ticket.price_at_listing),
        )
        for tensor, value in numbers:
            tensor.copy_(torch.where(place, value[:, None], tensor))

    def remove(self, gone: Tensor) -> None:
        """Clear the slots in the mask (E, P)."""
        self.open &= ~gone
        self.quantity.masked_fill_(gone[:, :, None], 0.0)
        self._numbers.masked_fill_(gone[:, None], 0.0)

    def mark(self, spot: Tensor, volatility: Tensor) -> None:
        """Price every leg at spot and volatility (E,); expired legs are worth their exercise value."""
        sums = self._sparse_sums(spot, volatility) if self._sparse else self._dense_sums(spot, volatility)
        worth, gross, exit_cost = sums[:3]
        self.worth.copy_(worth)
        self.gross.copy_(gross)
        self.exit_cost.copy_(exit_cost)
        rest = margin_beyond_price(self._settings, spot[:, None], self._out_of_the_money(spot))
        # A position with an uncovered leg has no other leg, so the position's worth is that leg's price.
        self.margin.copy_(torch.where(self.naked > 0, self.naked * rest - worth, self.wing))
        self.greeks.copy_(sums[3:].sum(2).t())

    def _dense_sums(self, spot: Tensor, volatility: Tensor) -> Tensor:
        """(8, E, P) the result of `_values`, summed over the legs."""
        # (E, 1, 1), to broadcast over slots and legs.
        place = (slice(None), None, None)
        days, price_at_listing = self.days[:, :, None], self.price_at_listing[:, :, None]
        legs = (spot[place], volatility[place], self.strike, days, price_at_listing, self.quantity, self.call)
        return self._values(*legs).sum(3)

    def _sparse_sums(self, spot: Tensor, volatility: Tensor) -> Tensor:
        """The same from existing legs only."""
        # Places of the legs in the flat (E x P x L) tensors, and of their positions in the flat (E x P) ones.
        legs = self.quantity.view(-1).nonzero().squeeze(1)
        position = torch.div(legs, MAX_LEGS, rounding_mode="floor")
        account = torch.div(position, self.open.shape[1], rounding_mode="floor")
        values = self._values(
            spot.index_select(0, account),
            volatility.index_select(0, account),
            self.strike.view(-1).index_select(0, legs),
            self.days.view(-1).index_select(0, position),
            self.price_at_listing.view(-1).index_select(0, position),
            self.quantity.view(-1).index_select(0, legs),
            self.call.view(-1).index_select(0, legs),
            account,
        )
        sums = values.new_zeros(len(values), self.open.numel()).index_add_(1, position, values)
        return sums.view(len(values), *self.open.shape)

    def _values(
        self,
        spot: Tensor,
        volatility: Tensor,
        strike: Tensor,
        days: Tensor,
        price_at_listing: Tensor,
        quantity: Tensor,
        call: Tensor,
        account: Tensor | None = None,
    ) -> Tensor:
        """(8, ...) for each leg: worth, |worth| and cost of closing it in dollars, and the five greeks.

        `account`: which one holds each leg; None = the first axis is E.
        """
        settings = self._settings
        price_over_strike = spot / strike
        sheet = self._quotes.legs(spot, volatility, strike, days, price_at_listing, account)
        price, spread = torch.where(call, sheet.call, sheet.put), half_spread(settings, price_over_strike)
        if self._quotes.recorded is not None:
            # The model's price stands where a contract has no quote that day.
            quote = self._quotes.recorded.held(strike, days, call, account)
            price, spread = torch.where(quote.found, quote.mid, price), torch.where(quote.found, quote.spread, spread)
        size = MULTIPLIER * quantity
        worth = size * price
        gross = worth.abs()
        # An option is closed at bid or ask, half a spread away from its mark.
        exit_cost = gross * spread + settings.commission * quantity.abs()
        # An expired option is cash: it has no greeks.
        alive = size * (days > 0)
        greeks = (
            torch.where(call, sheet.call_delta, sheet.call_delta - 1.0),
            sheet.gamma,
            torch.where(call, sheet.call_theta, sheet.put_theta),
            sheet.vega,
            torch.where(call, sheet.call_rho, sheet.put_rho),
        )
        return torch.stack((worth, gross, exit_cost, *(alive * greek for greek in greeks)))

    def _out_of_the_money(self, spot: Tensor) -> Tensor:
        """(E, P) dollars by which the first leg is out of the money, which is the only leg of a naked position."""
        above = spot[:, None] - self.strike[:, :, 0]
        return torch.where(self.call[:, :, 0], -above, above).clamp(min=0.0)


def margin_beyond_price(settings: MarketSettings, spot: Tensor, out_of_the_money: Tensor) -> Tensor:
    """Dollars of margin for an uncovered contract, besides its own price.

    `margin` times the underlying, less the out-of-the-money amount, but at least half of the former.
    """
    part = settings.margin * spot
    return MULTIPLIER * torch.maximum(part - out_of_the_money, 0.5 * part)
