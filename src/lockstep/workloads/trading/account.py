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
from lockstep.workloads.trading.positions import MULTIPLIER, Positions, Ticket, naked_margin

TALLY = ("closed", "won", "costs", "traded", "exposure", "change", "squares", "falls", "moves", "move_squares")
"""Sums over the episode: positions closed, those that earned, dollars of costs and of traded value, |delta| / value,
the value's daily change, its square, the square of its falls, the price's daily log change and its square."""


class Account:
    """The accounts' books; the state stays in the same tensors for good."""

    def __init__(self, config: MarketConfig, count: int, device: torch.device, term: Term | None = None) -> None:
        """`term`: how the options' volatility depends on the days to expiry."""
        self._config = config
        self.positions = Positions(config, count, device, term)
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
        """(E, 10) sums over the episode, see TALLY."""
        self.realised, self.costs, self.traded = zeros(), zeros(), zeros()
        """(E,) dollars of this step: profit of what was closed, costs, and traded value."""
        self.closings = zeros(2)
        """(E, 2) positions closed in this step, and those of them that earned."""
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
        for tensor in (self.realised, self.costs, self.traded, self.closings):
            tensor.zero_()
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
        needed = price + naked * naked_margin(config, spot, out_of_the_money, mid[:, 0]) + wing
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

    def _close(self, gone: Tensor, costs: bool = True) -> None:
        """Turn the positions in the mask (E, P) into cash, at bid or ask and with commission, or free at expiry."""
        positions = self.positions
        cost = positions.exit_cost if costs else torch.zeros_like(positions.exit_cost)
        proceeds = torch.where(gone, positions.worth - cost, 0.0)
        profit = torch.where(gone, proceeds - positions.paid, 0.0)
        self.cash.add_(proceeds.sum(1))
        self.realised.add_(profit.sum(1))
        self.closings.add_(torch.stack((gone.sum(1), (profit > 0).sum(1)), dim=1))
        if costs:
            self.costs.add_(torch.where(gone, cost, 0.0).sum(1))
            self.traded.add_(torch.where(gone, positions.gross, 0.0).sum(1))
        positions.remove(gone)

    def settle(self, spot: Tensor, volatility: Tensor, days: Tensor) -> Tensor:
        """Let `days` (E,) pass to the price `spot`: mark, expire, call margin. Returns the value's change (E,)."""
        positions = self.positions
        positions.days.sub_(days[:, None])
        positions.mark(spot, volatility)
        self._close(positions.open & (positions.days <= 0), costs=False)
        # What cannot be held any longer is sold at once: all of it, as a broker does.
        called = (self.cash < positions.margin.sum(1)) & (positions.margin > 0).any(1)
        self._close(positions.open & called[:, None])
        positions.greeks.mul_(positions.open.any(1)[:, None])
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
            *self.closings.unbind(1),
            self.costs,
            self.traded,
            exposure,
            change,
            change.square(),
            change.clamp(max=0.0).square(),
            log_move,
            log_move.square(),
        )
        self.tally.add_(torch.stack(today, dim=1))
