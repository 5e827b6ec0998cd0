"""Whether a market pays policies that ignore it: a fair one does not. E: accounts.

A blind policy decides by the calendar alone, so that it has learned nothing. What it earns, before the spreads and
commissions it pays, is a mistake of the quotes, or luck within the sampling error.

Its account must not decide for it. One that goes bankrupt, or has no cash for an order, stops after losses. In the
regime market losses tell the regime: stopping then pays, by 5,000 dollars if calls are bought and closed every 11 days
with 100,000 dollars. So the accounts get ten times the capital, for positions of the same size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from lockstep.workloads.trading.account.actions import ACTIONS, CLOSE_ALL, HOLD, LEGS
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


def measure(settings: MarketSettings, accounts: int, seed: int, device: torch.device) -> list[BlindResult]:
    """Let each policy trade an episode with so many accounts of its own."""
    settings = replace(
        settings, initial_capital=10.0 * settings.initial_capital, position_size=0.1 * settings.position_size
    )
    policies = blind_policies()
    names = [*policies, "random"]
    env = TradingEnv(settings, torch.arange(len(names) * accounts), seed, device)
    env.reset()
    account, market = env.account, env.market
    earned = torch.zeros(env.count, dtype=torch.float64, device=device)
    for day in range(settings.episode_length):
        orders = torch.tensor([policy(day) for policy in policies.values()], device=device).repeat_interleave(accounts)
        action = torch.cat((orders, random_action(env)[len(orders) :]))
        # A step of the environment without its observation, which takes longer than everything else.
        account.trade(action, market.spot, env.chain)
        market.advance()
        change = account.settle(market.spot, market.volatility, market.days)
        env.chain.quote(market.volatility)
        earned += change + account.costs
    columns = earned.view(len(names), accounts)
    errors = columns.std(1) / accounts**0.5
    return [BlindResult(*row) for row in zip(names, columns.mean(1).tolist(), errors.tolist(), strict=True)]
