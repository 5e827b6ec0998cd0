"""Options trading on many accounts at once, as plain tensors. E: accounts.

A step trades at today's quotes, lets a day pass, settles what expired and marks the rest. Money and prices are float64,
what is seen float32. An episode ends after `episode_length` days, positions counted at their mark, or in bankruptcy.
"""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.workloads.trading.account import Account
from lockstep.workloads.trading.actions import ACTIONS
from lockstep.workloads.trading.chain import Chain
from lockstep.workloads.trading.history import History, Split, load_history
from lockstep.workloads.trading.market import Market, Records
from lockstep.workloads.trading.market_config import MarketConfig
from lockstep.workloads.trading.observation import SIZES, observe
from lockstep.workloads.trading.paths import DAYS_AHEAD, Dice
from lockstep.workloads.trading.rewards import reward
from lockstep.workloads.trading.statement import statement


class TradingEnv:
    """A `VectorEnv` of trading accounts: observation (E, 430 + symbols) float32, eleven actions, never truncated."""

    def __init__(
        self,
        config: MarketConfig,
        index: Tensor,
        seed: int,
        device: torch.device,
        *,
        history: History | None = None,
        historical: bool | None = None,
        split: Split = "train",
        sparse: bool | None = None,
        staggered: bool = False,
    ) -> None:
        """`index` (E,): each account's number over the whole run. Call `reset` or `load` before the first step.

        `history`: the data, where it is loaded already. `historical`: all accounts trade its prices, or none does;
        None = as the lanes of the run say. `split`: the days of the data that are traded. `sparse`: price only the legs
        that there are and draw days ahead, which a recorded step cannot; the results are the same. Default: on the CPU.
        `staggered`: accounts enter their first episode on a day of it that is drawn, so that not all end at once.
        """
        self.config, self.seed, self.device = config, seed, device
        self.index = index.to(device, torch.int64)
        self.count = len(index)
        history = history or (load_history(config) if config.data else None)
        self.symbols: tuple[str, ...] = history.symbols if history else ()
        self.action_count = len(ACTIONS)
        self.observation_shape = (sum(SIZES.values()) + len(self.symbols),)
        replays = self._replays(historical)
        records = None
        if bool(replays.any()):
            if history is None:
                raise UserError("historical accounts need prices; add --data")
            records = Records(history, split, config.episode_length, device)
        sparse = device.type == "cpu" if sparse is None else sparse
        dice = Dice(seed, self.index, DAYS_AHEAD if sparse else 1)
        self.market = Market(config, self.index, seed, device, replays, records, dice)
        term = self.market.term
        self.account = Account(config, self.count, device, term, sparse)
        self.chain = Chain(config, self.count, device, term, self.market.constant_volatility)
        self.limit = torch.full_like(self.index, config.episode_length)
        """(E,) steps of an episode; fewer than asked for where the data has not as many days."""
        if records:
            self.limit.masked_fill_(self.market.historical, records.episode_length)
        self._started, self._staggered = False, staggered

    def _replays(self, historical: bool | None) -> Tensor:
        if historical is not None:
            return torch.full((self.count,), historical)
        lanes, units = self.config.effective_lanes, max(self.config.lane_units(), 1)
        chosen = torch.tensor([self.config.is_historical_lane(lane) for lane in range(lanes)])
        return chosen[(self.index.cpu() * lanes // units).clamp(max=lanes - 1)]

    def reset(self) -> Tensor:
        """Start every episode anew; returns the (E, 430 + symbols) observation. The markets go on."""
        first, self._started = not self._started, True
        if first:
            self.market.begin()
        observation = self.restart(torch.ones(self.count, dtype=torch.bool, device=self.device))
        if not (first and self._staggered):
            return observation
        word = random.words(self.seed, "trading-age", self.index, 0)[0]
        self.account.steps.copy_((word * self.limit) >> 32)
        return self._observation()

    def step(self, action: Tensor) -> Transition:
        """Trade by one action (E,) int64, let a day pass, and restart the accounts whose episode ended."""
        result, ended, info = self._advance(action)
        observation = self.restart(ended)
        return Transition(observation, result, ended, torch.zeros_like(ended), info=info)

    def advance(self, action: Tensor) -> Transition:
        """`step` without the restart: an account whose episode ended stays as it ended until `restart`."""
        result, ended, info = self._advance(action)
        observation = self.restart(torch.zeros_like(ended))
        return Transition(observation, result, ended, torch.zeros_like(ended), info=info)

    def restart(self, ended: Tensor) -> Tensor:
        """Start the episodes of the accounts in the mask (E,) anew; returns the observation of all."""
        self.market.restart(ended)
        self.account.restart(ended)
        self.chain.quote(self.market.volatility)
        return self._observation()

    def _advance(self, action: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        market, account = self.market, self.account
        account.trade(action, market.spot, self.chain)
        before = market.spot.clone()
        market.advance()
        change = account.settle(market.spot, market.volatility, market.days)
        account.record(change, market.spot, torch.log(market.spot / before))
        bankrupt = account.value <= self.config.bankruptcy * self.config.initial_capital
        ended = bankrupt | (account.steps >= self.limit)
        return reward(self.config, account, change), ended, statement(self.config, account, market, bankrupt)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, each with E as its first axis; copies."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Take up a state from `state`; returns the observation to act on."""
        for name, tensor in self._tensors().items():
            if state[name].shape != tensor.shape:
                found, wanted = tuple(state[name].shape), tuple(tensor.shape)
                raise UserError(f"trading state: {name} has shape {found}, this market and accounts need {wanted}")
            tensor.copy_(state[name])
        self._started = True
        self.market.dice.forget()
        self.account.positions.mark(self.market.spot, self.market.volatility)
        self.chain.quote(self.market.volatility)
        return self._observation()

    def _tensors(self) -> dict[str, Tensor]:
        market = {f"market.{name}": tensor for name, tensor in self.market.tensors().items()}
        return market | {f"account.{name}": tensor for name, tensor in self.account.tensors().items()}

    def _observation(self) -> Tensor:
        return observe(self.config, self.market, self.chain, self.account, self.limit, len(self.symbols))
