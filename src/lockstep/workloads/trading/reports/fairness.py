"""Whether a market pays policies that ignore it: a fair one does not. E: accounts.

A blind policy decides by the calendar alone, so that it has learned nothing. What it earns, before the spreads and
commissions it pays, is a mistake of the quotes, or luck within the sampling error.

Its account must not decide for it. One that goes bankrupt, or has no cash for an order, stops after losses. In the
regime market losses tell the regime: stopping then pays, by 5,000 dollars if calls are bought and closed every 11 days
with 100,000 dollars. So the accounts get ten times the capital, for positions of the same size.

All policies trade the same prices: each needs many accounts, but what one of them earns need not be independent of what
another does. Positions are marked when they become cash, as the marks in between cancel out of what an account earns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.account.actions import ACTIONS, CLOSE_ALL, HOLD, LEGS
from lockstep.workloads.trading.account.positions import Positions
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.reports.baselines import random_action

CLOSES_EVERY = 11
"""Days after which the policies that close early close all positions."""
_ORDERS = tuple(LEGS)


def blind_policies() -> dict[str, Callable[[int], int]]:
    """19 policies by name, from a day's number to an action; random actions are the twentieth."""
    found: dict[str, Callable[[int], int]] = {"all kinds in turn": _in_turn}
    for order in _ORDERS:
        # Every day: orders without a free slot are ignored.
        found[ACTIONS[order]] = partial(_always, order)
        found[f"{ACTIONS[order]}, closed early"] = partial(_closing_early, order)
    return found


def _always(order: int, day: int) -> int:
    return order


def _closing_early(order: int, day: int) -> int:
    return CLOSE_ALL if day % CLOSES_EVERY == CLOSES_EVERY - 1 else order


def _in_turn(day: int) -> int:
    """One order a week."""
    return HOLD if day % 7 else _ORDERS[day // 7 % len(_ORDERS)]


@dataclass(frozen=True)
class BlindResult:
    """What a policy earned in an episode before costs, in dollars."""

    policy: str
    mean: float
    error: float
    """The standard error of the mean."""

    @property
    def errors(self) -> float:
        """How many standard errors the mean is above zero."""
        return self.mean / self.error

    def line(self) -> str:
        """As text."""
        return f"{self.policy:32}{self.mean:10,.0f} +- {self.error:6,.0f}{self.errors:8.2f}"


class _Due(Positions):
    """Positions that are priced only when they expire or are about to be closed; meanwhile they count as worthless."""

    closing: Tensor
    """(E,) bool: accounts that close all positions at this mark."""

    def _sparse_sums(self, spot: Tensor, volatility: Tensor) -> Tensor:
        held = self.quantity
        self.quantity = held * ((self.days <= 0) | self.closing[:, None])[:, :, None]
        sums = super()._sparse_sums(spot, volatility)
        self.quantity = held
        return sums


class _Book:
    """One policy's accounts. Most days nothing is opened, closed or expires; those cost hardly any time."""

    def __init__(self, settings: MarketSettings, env: TradingEnv) -> None:
        count, quotes = env.count, env.market.quotes
        self._market, self._chain = env.market, env.chain
        self._account = Account(settings, count, env.device, quotes)
        self._positions = _Due(settings, count, env.device, quotes, sparse=True)
        self._account.positions = self._positions
        self._account.restart(torch.ones(count, dtype=torch.bool, device=env.device))
        self._costs = torch.zeros_like(self._account.value)

    def trade(self, action: Tensor) -> None:
        """Execute an action (E,) at today's quotes."""
        order = (action != HOLD) & ~self._positions.open.all(1)
        if bool((order | (action == CLOSE_ALL)).any()):
            self._account.trade(action, self._market.spot, self._chain)
            self._costs += self._account.costs

    def settle(self, closing: Tensor) -> None:
        """Let the market's last day pass; `closing`: see `_Due`."""
        days = self._market.days
        if not bool((closing | (self._positions.open & (self._positions.days <= days[:, None])).any(1)).any()):
            self._positions.days.sub_(days[:, None])
            return
        self._positions.closing = closing
        self._account.step_sums.zero_()
        self._account.settle(self._market.spot, self._market.volatility, days)
        self._costs += self._account.costs

    def earned(self, capital: float) -> Tensor:
        """(E,) dollars before costs."""
        return self._account.value - capital + self._costs


def measure(settings: MarketSettings, accounts: int, seed: int, device: torch.device) -> list[BlindResult]:
    """Let each policy trade an episode with so many accounts of its own."""
    settings = replace(
        settings, initial_capital=10.0 * settings.initial_capital, position_size=0.1 * settings.position_size
    )
    env = TradingEnv(settings, torch.arange(accounts), seed, device)
    env.reset()
    books = {name: _Book(settings, env) for name in (*blind_policies(), "random")}
    actions = _orders(env, 0)
    for day in range(1, settings.episode_length + 1):
        for book, action in zip(books.values(), actions, strict=True):
            book.trade(action)
        env.market.advance()
        env.chain.quote(env.market.volatility)
        actions = _orders(env, day)
        for book, action in zip(books.values(), actions, strict=True):
            # At the end everything is priced, and nothing closed.
            book.settle((action == CLOSE_ALL) | (day == settings.episode_length))
    return [_result(name, book.earned(settings.initial_capital)) for name, book in books.items()]


def _orders(env: TradingEnv, day: int) -> list[Tensor]:
    """The action (E,) of each policy on a day."""
    return [*(torch.full_like(env.index, policy(day)) for policy in blind_policies().values()), random_action(env)]


def _result(policy: str, earned: Tensor) -> BlindResult:
    return BlindResult(policy, float(earned.mean()), float(earned.std()) / len(earned) ** 0.5)
