"""Options trading on many accounts at once. E: accounts."""

import torch
from torch import Tensor

from lockstep.parts.vector_env import Transition
from lockstep.workloads.trading.actions import ACTIONS
from lockstep.workloads.trading.market_config import MarketConfig
from lockstep.workloads.trading.observation import SIZES

INFO = (
    "profit",  # account value less initial capital, dollars, open positions at their mark
    "value",  # account value at the end, dollars
    "closed_trades",  # positions closed or expired
    "winning_trades",  # those of them that earned money after all costs
    "win_rate",  # winning / closed, 0 where none closed
    "open_positions",
    "turnover",  # traded value (premiums of all contracts bought and sold) / initial capital
    "exposure",  # mean over steps of |delta dollars| / account value
    "costs",  # commissions and half-spreads paid, dollars
    "drawdown",  # largest fall from a peak of the value, as a part of the peak
    "sharpe",  # mean / deviation of the daily value changes, times sqrt(252); 0 for a constant value
    "sortino",  # the same with the downside deviation
    "bankrupt",
    "historical",  # traded the data's prices
)
"""What `Transition.info` says about an episode that ended, (E,) each."""


class TradingEnv:
    """A `VectorEnv` of trading accounts: observation (E, 430 + symbols) float32, eleven actions, never truncated."""

    def __init__(
        self,
        config: MarketConfig,
        index: Tensor,
        seed: int,
        device: torch.device,
        historical: bool | None = None,
        split: str = "train",
    ) -> None:
        """`index` (E,): each account's number over the whole run.

        `historical`: all accounts trade the data's prices, or none does; None = as the lanes of the run say.
        `split`: "train" or "validation", the days of the data that are traded.
        """
        self.config, self.seed, self.device = config, seed, device
        self.index = index.to(device, torch.int64)
        self.count = len(index)
        self.symbols: tuple[str, ...] = ()
        self.action_count = len(ACTIONS)
        self.observation_shape = (sum(SIZES.values()) + len(self.symbols),)
        self.steps = torch.zeros(self.count, dtype=torch.int64, device=device)

    def reset(self) -> Tensor:
        """Start every episode anew; returns the (E, 430 + symbols) observation."""
        self.steps.zero_()
        return torch.zeros(self.count, *self.observation_shape, device=self.device)

    def step(self, action: Tensor) -> Transition:
        """Trade by one action (E,) at today's quotes, then let a day pass; restart accounts whose episode ended."""
        self.steps += 1
        ended = self.steps >= self.config.episode_length
        self.steps.masked_fill_(ended, 0)
        zero = torch.zeros(self.count, device=self.device)
        observation = torch.zeros(self.count, *self.observation_shape, device=self.device)
        return Transition(observation, zero, ended, torch.zeros_like(ended), info=dict.fromkeys(INFO, zero))

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, each with E as its first axis; copies."""
        return {"steps": self.steps.clone()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Take up a state from `state`; returns the observation to act on."""
        self.steps.copy_(state["steps"])
        return torch.zeros(self.count, *self.observation_shape, device=self.device)
