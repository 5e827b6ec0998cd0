"""Cash, orders, expiry, margin calls and the record of an episode. E: accounts, P: slots for positions.

Invariant: value = cash + marks of the open positions. The value changes when marks move, and by the costs (half-spreads
and commissions) of trades. Otherwise buying, selling, exercise and assignment (in cash) only exchange cash for marks.
"""

import torch
from torch import Tensor

from lockstep.workloads.trading.account.actions import CLOSE_ALL, ActionTable
from lockstep.workloads.trading.account.positions import MULTIPLIER, Positions, Ticket, margin_beyond_price
from lockstep.workloads.trading.market.chain import Chain
from lockstep.workloads.trading.market.quotes import Quotes
from lockstep.workloads.trading.market.settings import MarketSettings

TALLY = ("closed", "won", "costs", "traded", "exposure", "change", "squares", "falls", "moves", "move_squares", "days")
"""Sums over the episode: positions closed, positions closed at a profit, dollars of costs and of traded value,
|delta| / value, the value's daily change, its square, the square of its falls, the price's daily log change, its
square, and 1, which counts the days. Means and deviations are computed from these at the end of an episode."""


class Account:
    """The accounts. All state is updated in place, because a captured CUDA graph keeps the tensors' addresses."""

    def __init__(
        self,
        settings: MarketSettings,
        count: int,
        device: torch.device,
        quotes: Quotes,
        sparse: bool = False,
    ) -> None:
        """`sparse`: see `Positions`."""
        self._settings, self._quotes = settings, quotes
        self.positions = Positions(settings, count, device, quotes, sparse)
        self.action_table = ActionTable.on(device)

        # float64: cents must not be lost in a value of up to a billion dollars.
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(count, *shape, dtype=torch.float64, device=device)

        self.cash, self.value = zeros(), zeros()
        """(E,) dollars; the value includes the marks of open positions."""
        self.peak, self.drawdown = zeros(), zeros()
        """(E,) the highest value so far, and the largest fall from a peak, as a fraction of it."""
        self.steps = torch.zeros(count, dtype=torch.int64, device=device)
        """(E,) days of the episode so far."""
        self.tally = zeros(len(TALLY))
        """(E, 11) sums over the episode, see TALLY."""
        # The five are views of one tensor, so that one operation clears or adds to all of them.
        self.step_sums = zeros(5)
        self.realised, self.costs, self.traded, self.closed, self.won = self.step_sums.unbind(1)
        """(E,) in this step: dollars of realised profit, of costs and of traded value, positions closed, and positions
        closed at a profit."""
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self.opened = torch.zeros(count, dtype=torch.int64, device=device)
        """(E,) contracts of each leg opened in this step; 0 if no position was opened."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to continue. The names are keys of a run's checkpoints."""
        names = ("cash", "value", "peak", "drawdown", "steps", "tally")
        return {name: getattr(self, name) for name in names} | self.positions.tensors()

    def restart(self, ended: Tensor) -> None:
        """Give the accounts in the mask (E,) their initial capital and no positions."""
        self.positions.remove(ended[:, None].expand_as(self.positions.open))
        for tensor in (self.cash, self.value, self.peak):
            tensor.masked_fill_(ended, self._settings.initial_capital)
        self.drawdown.masked_fill_(ended, 0.0)
        self.steps.masked_fill_(ended, 0)
        self.tally.masked_fill_(ended[:, None], 0.0)
        self.positions.greeks.masked_fill_(ended[:, None], 0.0)

    def trade(self, action: Tensor, spot: Tensor, chain: Chain) -> None:
        """Execute an action (E,) at the last mark's quotes; orders without enough cash or a free slot are ignored."""
        self.step_sums.zero_()
        self._close(self.positions.open & (action == CLOSE_ALL)[:, None])
        self._open(action, spot, chain)

    def _open(self, action: Tensor, spot: Tensor, chain: Chain) -> None:
        """Open a position for each action (E,) that is an order; the others have no legs, which makes 0 contracts."""
        settings, table = self._settings, self.action_table
        contract, side = table.contract.index_select(0, action), table.side.index_select(0, action)
        call, legs = table.call.index_select(0, action), table.legs.index_select(0, action)
        moneyness = table.moneyness.index_select(0, action)
        size = self._quotes.contract_size(spot)
        # Dollars of one unit of the underlying, times the size: everything below is for one contract of that size.
        unit = spot * size
        # (E, 4 legs). The ladder is per dollar of the price; it has one row if all accounts share its quotes.
        mid = chain.ladder.expand(len(action), -1).gather(1, contract) * unit[:, None]
        strike, available = moneyness * spot[:, None], legs > 0
        if chain.listing is not None:
            # What is listed near the strikes that the action means.
            strike = torch.where(chain.listing.real, chain.listing.strike.gather(1, contract), strike)
            moneyness = torch.where(chain.listing.real, strike / spot[:, None], moneyness)
            listed = chain.listing.available.gather(1, contract) | ~chain.listing.real
            available = available & (listed | (side == 0)).all(1)
        gross = MULTIPLIER * mid * side.abs()
        spread = (gross * chain.spread.expand(len(action), -1).gather(1, contract)).sum(1)
        fee = settings.commission * legs * size
        # Of one unit; negative if more is received than paid.
        price = (MULTIPLIER * mid * side).sum(1) + spread + fee
        # Only naked positions use it. They have one leg, which is sold out of the money: the call above the price, the
        # put below it. Hence the absolute value.
        out_of_the_money = (moneyness[:, 0] - 1.0).abs() * unit
        naked = table.naked.index_select(0, action)
        wing = table.width.index_select(0, action) * unit * MULTIPLIER
        if chain.listing is not None:
            # A condor loses at most its wider side: the legs are its put sold, put bought, call sold and call bought.
            sides = torch.maximum(strike[:, 0] - strike[:, 1], strike[:, 3] - strike[:, 2]) * size * MULTIPLIER
            wing = torch.where((wing > 0) & chain.listing.real[:, 0], sides, wing)
        # The premium received (a negative price) is tied up again as part of the margin, so it cannot be spent.
        tied_up = MULTIPLIER * mid[:, 0] + margin_beyond_price(settings, unit, out_of_the_money)
        needed = price + naked * tied_up + wing
        # Masks instead of branches: a step must not wait for the device.
        contracts = self._affordable(needed) * available * ~self.positions.open.all(1)
        self.positions.add(
            Ticket(
                contracts=contracts,
                size=size,
                side=side,
                strike=strike,
                price_at_listing=spot,
                days=chain.expiry.expand(len(action)),
                call=call,
                paid=price * contracts,
                naked=naked * contracts * size,
                wing=wing * contracts,
            )
        )
        self.cash.sub_(price * contracts)
        self.costs.add_((spread + fee) * contracts)
        self.traded.add_(gross.sum(1) * contracts)
        self.opened.copy_(contracts)

    def _affordable(self, needed: Tensor) -> Tensor:
        """(E,) contracts that position_size allows, at least one; 0 if there is not enough free cash for one."""
        # A position whose premium covers its margin needs no cash; one cent keeps the division finite.
        needed = needed.clamp(min=0.01)
        free = self.cash - self.positions.margin.sum(1)
        budget = self._settings.position_size * self._settings.initial_capital
        contracts = (free.clamp(max=budget) / needed).floor().clamp(min=1.0)
        return torch.where(free >= needed, contracts, 0.0)

    def _close(self, sold: Tensor, expired: Tensor | None = None) -> None:
        """Turn positions into cash: those `sold` (E, P) at bid or ask less commission, expired ones without costs."""
        positions, zero = self.positions, self._zero
        gone = sold if expired is None else sold | expired
        cost = torch.where(sold, positions.exit_cost, zero)
        proceeds = positions.worth - cost
        profit = torch.where(gone, proceeds - positions.paid, zero)
        # The first goes to the cash, the other five are in the order of `step_sums`.
        sums = torch.stack(
            (
                torch.where(gone, proceeds, zero),
                profit,
                cost,
                torch.where(sold, positions.gross, zero),
                gone.double(),
                (profit > 0).double(),
            )
        ).sum(2)
        self.cash.add_(sums[0])
        self.step_sums.add_(sums[1:].t())
        positions.remove(gone)

    def settle(self, spot: Tensor, volatility: Tensor, days: Tensor) -> Tensor:
        """Let `days` (E,) pass to the price `spot`: mark, expire, call margin. Returns the value's change (E,)."""
        positions = self.positions
        # Empty slots count down, too: `add` sets the days of a new position.
        positions.days.sub_(days[:, None])
        positions.mark(spot, volatility)
        expired = positions.open & (positions.days <= 0)
        kept = positions.open & ~expired
        margin = torch.where(kept, positions.margin, self._zero).sum(1)
        # Cash from expired positions arrives before the margin is checked.
        called = self.cash + torch.where(expired, positions.worth, self._zero).sum(1) < margin
        # On a margin call a broker liquidates the whole account, not only as much as is needed.
        self._close(kept & (called & (margin > 0))[:, None], expired)
        # `mark` summed the greeks before positions were closed. Expired options have none, and a margin call closes all
        # others: the sum is still right, or must be zero.
        positions.greeks.masked_fill_(~positions.open.any(1, keepdim=True), 0.0)
        before = self.value.clone()
        self.value.copy_(self.cash + positions.worth.sum(1))
        return self.value - before

    def record(self, change: Tensor, spot: Tensor, log_move: Tensor) -> None:
        """Add a day to the episode's sums: the value's change, and the price with its log change, (E,) each."""
        self.steps.add_(1)
        self.peak.copy_(torch.maximum(self.peak, self.value))
        self.drawdown.copy_(torch.maximum(self.drawdown, 1.0 - self.value / self.peak))
        # The value can be negative for a step, before bankruptcy ends the episode.
        exposure = (self.positions.greeks[:, 0] * spot).abs() / self.value.clamp(min=1.0)
        today = (
            self.closed,
            self.won,
            self.costs,
            self.traded,
            exposure,
            change,
            change.square(),
            change.clamp(max=0.0).square(),
            log_move,
            log_move.square(),
            torch.ones_like(change),
        )
        self.tally.add_(torch.stack(today, dim=1))
