"""Options trading on many accounts at once, as plain tensors. E: accounts.

A step trades at today's quotes, advances one day, settles expired positions and marks the others to market. Money and
prices are float64, observations float32. An episode ends after `episode_length` days, with open positions valued at
their mark, or in bankruptcy.
"""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.account.rewards import reward
from lockstep.workloads.trading.account.statement import statement
from lockstep.workloads.trading.market.chain import Chain
from lockstep.workloads.trading.market.history import History, Split, load_history
from lockstep.workloads.trading.market.market import Market, Records
from lockstep.workloads.trading.market.paths import DAYS_AHEAD, Dice
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.observation import SIZES, observe, symbols_told


class TradingEnv:
    """A `VectorEnv` of trading accounts: observation (E, 430 + symbols) float32, eleven actions, never truncated."""

    def __init__(
        self,
        settings: MarketSettings,
        index: Tensor,
        seed: int,
        device: torch.device,
        *,
        history: History | None = None,
        historical: Tensor | bool | None = None,
        split: Split = "train",
        sparse: bool | None = None,
        staggered: bool = False,
    ) -> None:
        """`index` (E,): each account's number over the whole run. Call `reset` or `load` before the first step.

        `history`: the data, if it is already loaded. `historical`: which accounts (E,) trade its prices, or whether
        all do; None = all, if there is data. `split`: the days of the data to trade. `sparse`: price only existing
        legs and draw days ahead, which a captured CUDA graph cannot do; the results are the same. None = only on the
        CPU. `staggered`: accounts start their first episode at a random step of it, so that not all end at once.
        """
        self.settings, self.seed, self.device = settings, seed, device
        self.index = index.to(device, torch.int64)
        self.count = len(index)
        history = history or (load_history(settings) if settings.data else None)
        self._told = symbols_told(settings, history)
        self.action_count = len(ACTIONS)
        self.observation_shape = (sum(SIZES.values()) + self._told,)
        if not isinstance(historical, Tensor):
            historical = torch.full((self.count,), history is not None if historical is None else historical)
        records = None
        if bool(historical.any()):
            if history is None:
                raise UserError("historical accounts need real prices, but there is no data; add --data")
            records = Records(history, split, settings, device)
        sparse = device.type == "cpu" if sparse is None else sparse
        dice = Dice(seed, self.index, DAYS_AHEAD if sparse else 1)
        self.market = Market(settings, self.index, seed, device, historical, records, dice)
        quotes = self.market.quotes
        self.account = Account(settings, self.count, device, quotes, sparse)
        self.chain = Chain(settings, self.count, device, quotes, self.market.constant_volatility)
        # A tensor, because accounts on real and on simulated prices may have different lengths.
        self.limit = torch.full_like(self.index, settings.episode_length)
        """(E,) steps of an episode; fewer than `episode_length` if the data has fewer days."""
        if records:
            self.limit.masked_fill_(self.market.historical, records.episode_length)
        self._started, self._staggered = False, staggered

    def reset(self) -> Tensor:
        """Restart every episode; returns the (E, 430 + symbols) observation. Simulated markets are not reset."""
        # Only the first reset begins the markets; later ones continue them, so that a reset does not repeat episodes.
        first, self._started = not self._started, True
        if first:
            self.market.begin()
        observation = self.restart(torch.ones(self.count, dtype=torch.bool, device=self.device))
        if not (first and self._staggered):
            return observation
        # A 32-bit word times the limit, shifted by 32 bits: uniform from 0 to limit - 1.
        word = random.random_words(self.seed, "trading-age", self.index, 0)[0]
        self.account.steps.copy_((word * self.limit) >> 32)
        return self._observation()

    def step(self, action: Tensor) -> Transition:
        """Execute an action (E,) int64, advance one day, and restart the accounts whose episode ended."""
        result, ended, info = self._advance(action)
        observation = self.restart(ended)
        return Transition(observation, result, ended, torch.zeros_like(ended), info=info)

    def advance(self, action: Tensor) -> Transition:
        """`step` without the restart: an account whose episode ended keeps its final state until `restart`."""
        result, ended, info = self._advance(action)
        # An empty mask restarts nothing, but reads the bars and quotes of the new day.
        observation = self.restart(torch.zeros_like(ended))
        return Transition(observation, result, ended, torch.zeros_like(ended), info=info)

    def restart(self, ended: Tensor) -> Tensor:
        """Restart the episodes of the accounts in the mask (E,); returns the observation of all accounts."""
        # The market first: the quotes depend on its volatility.
        self.market.restart(ended)
        self.account.restart(ended)
        self.chain.quote(self.market.volatility)
        return self._observation()

    def start_at(self, row: Tensor) -> Tensor:
        """Start every account's episode at a bar (E,) of the data, instead of a random one; returns the observation."""
        self._started = True
        self.market.move(row)
        self.market.first_spot.copy_(self.market.spot)
        self.account.restart(torch.ones_like(self.market.historical))
        self.chain.quote(self.market.volatility)
        return self._observation()

    def _advance(self, action: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        market, account = self.market, self.account
        # Orders are filled at the quotes of the observation that the action was chosen for.
        account.trade(action, market.spot, self.chain)
        before = market.spot.clone()
        market.advance()
        change = account.settle(market.spot, market.volatility, market.days)
        account.record(change, market.spot, torch.log(market.spot / before))
        bankrupt = account.value <= self.settings.bankruptcy * self.settings.initial_capital
        ended = bankrupt | (account.steps >= self.limit)
        return reward(self.settings, account, change), ended, statement(self.settings, account, market, bankrupt)

    def state(self) -> dict[str, Tensor]:
        """Copies of everything needed to continue, each with E as its first axis."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Continue from a state that `state` returned; returns the observation to act on."""
        for name, tensor in self._tensors().items():
            if state[name].shape != tensor.shape:
                found, needed = tuple(state[name].shape), tuple(tensor.shape)
                raise UserError(f"trading state: {name} has shape {found}, this market and accounts need {needed}")
            tensor.copy_(state[name])
        if len(self.market.row) and int(self.market.row.max()) >= self.market.bar_count:
            raise UserError(
                "trading state: its accounts are on days that this data does not have; "
                "resume with the symbols and dates that the run was started with"
            )
        self._started = True
        # The days drawn ahead are those of the old clocks.
        self.market.dice.forget()
        # Marks and quotes are not in the state: they follow from it.
        self.account.positions.mark(self.market.spot, self.market.volatility)
        self.chain.quote(self.market.volatility)
        return self._observation()

    def _tensors(self) -> dict[str, Tensor]:
        market = {f"market.{name}": tensor for name, tensor in self.market.tensors().items()}
        return market | {f"account.{name}": tensor for name, tensor in self.account.tensors().items()}

    def _observation(self) -> Tensor:
        return observe(self.settings, self.market, self.chain, self.account, self.limit, self._told)
