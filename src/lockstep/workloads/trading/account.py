"""Cash, orders, expiry, margin calls and the record of an episode. E: accounts, P: places for positions.

The books: value = cash + marks of the open positions. It changes by the marks' moves, and by costs (half-spreads and
commissions) when something is traded; buying, selling, exercise and assignment (in cash) only exchange the two.
"""

import torch
from torch import Tensor

from lockstep.workloads.trading.actions import CLOSE_ALL, Book
from lockstep.workloads.trading.chain import Chain
from lockstep.workloads.trading.market_config import MarketConfig
from lockstep.workloads.trading.paths import Term
from lockstep.workloads.trading.positions import MULTIPLIER, Positions, Ticket, margin_beyond_price

TALLY = ("closed", "won", "costs", "traded", "exposure", "change", "squares", "falls", "moves", "move_squares", "days")
"""Sums over the episode: positions closed, those that earned, dollars of costs and of traded value, |delta| / value,
the value's daily change, its square, the square of its falls, the price's daily log change, its square, and 1."""


class Account:
    """The accounts' books; the state stays in the same tensors for good."""

    def __init__(
        self,
        config: MarketConfig,
        count: int,
        device: torch.device,
        term: Term | None = None,
        sparse: bool = False,
    ) -> None:
        """`term`: how the options' volatility depends on the days to expiry. `sparse`: see `Positions`."""
        self._config = config
        self.positions = Positions(config, count, device, term, sparse)
        self.book = Book.on(device)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(count, *shape, dtype=torch.float64, device=device)

        self.cash, self.value = zeros(), zeros()
        """(E,) dollars; the value includes the marks of open positions."""
        self.peak, self.drawdown = zeros(), zeros()
        """(E,) the highest value so far, and the deepest fall from one, as a part of it."""
        self.steps = torch.zeros(count, dtype=torch.int64, device=device)
        """(E,) days of the episode so far."""
        self.tally = zeros(len(TALLY))
        """(E, 11) sums over the episode, see TALLY."""
        self.step_sums = zeros(5)
        self.realised, self.costs, self.traded, self.closed, self.won = self.step_sums.unbind(1)
        """(E,) of this step: dollars of profit of what was closed, of costs and of traded value, positions closed, and
        those of them that earned."""
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self.opened = torch.zeros(count, dtype=torch.int64, device=device)
        """(E,) contracts of each leg that this step opened; 0 where it opened nothing."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        names = ("cash", "value", "peak", "drawdown", "steps", "tally")
        return {name: getattr(self, name) for name in names} | self.positions.tensors()

    def restart(self, ended: Tensor) -> None:
        """Give the accounts in the mask (E,) their initial capital and no positions."""
        self.positions.remove(ended[:, None].expand_as(self.positions.open))
        for tensor in (self.cash, self.value, self.peak):
            tensor.masked_fill_(ended, self._config.initial_capital)
        self.drawdown.masked_fill_(ended, 0.0)
        self.steps.masked_fill_(ended, 0)
        self.tally.masked_fill_(ended[:, None], 0.0)
        self.positions.greeks.masked_fill_(ended[:, None], 0.0)

    def trade(self, action: Tensor, spot: Tensor, chain: Chain) -> None:
        """Carry out an action (E,) at the quotes of the last mark; what cannot be paid or placed is not done."""
        self.step_sums.zero_()
        self._close(self.positions.open & (action == CLOSE_ALL)[:, None])
        self._open(action, spot, chain)

    def _open(self, action: Tensor, spot: Tensor, chain: Chain) -> None:
        config, book = self._config, self.book
        contract, side = book.contract.index_select(0, action), book.side.index_select(0, action)
        call, legs = book.call.index_select(0, action), book.legs.index_select(0, action)
        moneyness = book.moneyness.index_select(0, action)
        mid = chain.ladder.expand(len(action), -1).gather(1, contract) * spot[:, None]
        gross = MULTIPLIER * mid * side.abs()
        spread = (gross * chain.spread[contract]).sum(1)
        fee = config.commission * legs
        price = (MULTIPLIER * mid * side).sum(1) + spread + fee
        out_of_the_money = (moneyness[:, 0] - 1.0).abs() * spot
        naked = book.naked.index_select(0, action)
        wing = book.width.index_select(0, action) * spot * MULTIPLIER
        tied_up = MULTIPLIER * mid[:, 0] + margin_beyond_price(config, spot, out_of_the_money)
        needed = price + naked * tied_up + wing
        contracts = self._affordable(needed) * (legs > 0) * ~self.positions.open.all(1)
        self.positions.add(
            Ticket(
                contracts=contracts,
                side=side,
                strike=moneyness * spot[:, None],
                call=call,
                paid=price * contracts,
                naked=naked * contracts,
                wing=wing * contracts,
            )
        )
        self.cash.sub_(price * contracts)
        self.costs.add_((spread + fee) * contracts)
        self.traded.add_(gross.sum(1) * contracts)
        self.opened.copy_(contracts)

    def _affordable(self, needed: Tensor) -> Tensor:
        """(E,) contracts that position_size allows, at least one, as far as there is free cash for them."""
        needed = needed.clamp(min=0.01)
        free = self.cash - self.positions.margin.sum(1)
        budget = self._config.position_size * self._config.initial_capital
        wanted = (free.clamp(max=budget) / needed).floor().clamp(min=1.0)
        return torch.where(free >= needed, wanted, 0.0)

    def _close(self, sold: Tensor, expired: Tensor | None = None) -> None:
        """Turn positions into cash: those sold (E, P) at bid or ask and with commission, those expired for nothing."""
        positions, zero = self.positions, self._zero
        gone = sold if expired is None else sold | expired
        cost = torch.where(sold, positions.exit_cost, zero)
        proceeds = positions.worth - cost
        profit = torch.where(gone, proceeds - positions.paid, zero)
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
        positions.days.sub_(days[:, None])
        positions.mark(spot, volatility)
        expired = positions.open & (positions.days <= 0)
        kept = positions.open & ~expired
        margin = torch.where(kept, positions.margin, self._zero).sum(1)
        called = self.cash + torch.where(expired, positions.worth, self._zero).sum(1) < margin
        # What the cash no longer covers is sold at once: all of it, as a broker does.
        self._close(kept & (called & (margin > 0))[:, None], expired)
        positions.greeks.masked_fill_(~positions.open.any(1, keepdim=True), 0.0)
        before = self.value.clone()
        self.value.copy_(self.cash + positions.worth.sum(1))
        return self.value - before

    def record(self, change: Tensor, spot: Tensor, log_move: Tensor) -> None:
        """Add a day to the episode's sums: the value's change, and the price with its log change, (E,) each."""
        self.steps.add_(1)
        self.peak.copy_(torch.maximum(self.peak, self.value))
        self.drawdown.copy_(torch.maximum(self.drawdown, 1.0 - self.value / self.peak))
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
