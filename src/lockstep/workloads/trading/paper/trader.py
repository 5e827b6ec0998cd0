"""Decides for each new day of the data with a paper account, exactly as an evaluation over those days would.

At a day's close the policy observes, and its action is executed at that day's quotes. What follows from it is known
once the next day is there: the file keeps the account before the action, and the action.
"""

from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.rl.player import PolicyPlayer
from lockstep.storage.tensor_file import weights_hash
from lockstep.workloads.capabilities import TradeRequest
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.data_record import ANY_DAY, record_of, trained_days
from lockstep.workloads.trading.market.history import WARM_UP, History, load_history
from lockstep.workloads.trading.market.indicators import CLOSE
from lockstep.workloads.trading.observation import parts, symbols_told
from lockstep.workloads.trading.paper.account_file import PaperAccount, Tensors, read_account
from lockstep.workloads.trading.paper.decision import Decision, TradingDays

_SAME_PRICE = 1e-9
"""Relative difference up to which a price of the past counts as unchanged."""
_CORRECTED = 1e-3
"""Relative difference up to which it may have been corrected, by a cent or so, rather than adjusted."""
_PREFIX = "account."
"""Of the account's tensors in the environment's state."""


def trade(request: TradeRequest) -> TradingDays:
    """Take up the account, decide on every new day, and write it after the last."""
    settings = replace(request.config.workload, validation_from=ANY_DAY)
    history, learner = load_history(settings), request.learner
    assert isinstance(learner, PPOLearner)
    cpu = torch.device("cpu")
    env = TradingEnv(settings, torch.tensor([0]), 0, cpu, history=history, split="validation")
    # An evaluation's episode is shorter if its days are few; here more of them are still to come.
    env.limit.fill_(settings.episode_length)
    trader = _Trader(
        env, history, learner.player(0), trained_days(record_of(settings, request.trained_on)) or (1, 0), []
    )
    model = weights_hash(learner.model.state_dict())
    before = read_account(request.account, trader.account(), trader.player.memory(1))
    symbol = _symbol(request, before, history)
    (rows,) = np.nonzero(history.symbol == history.symbols.index(symbol))
    if before is None:
        trader.begin(int(rows[-1]))
    else:
        trader.catch_up(before, rows, _row_of_last_day(before, request, rows, history, model))
    return _kept(trader, request, before, symbol, model)


def _symbol(request: TradeRequest, before: PaperAccount | None, history: History) -> str:
    """The symbol to trade: the account's, the one asked for, or the only one."""
    wanted = before.symbol if before else request.symbol
    if before and request.symbol not in ("", before.symbol):
        raise UserError(
            f"--symbol {shown(request.symbol)}: the account {shown_path(str(request.account))} trades "
            f"{shown(before.symbol)}; leave this out, or name another --account"
        )
    known = ", ".join(shown(name) for name in history.symbols[:50])
    if not wanted and len(history.symbols) > 1:
        raise UserError(f"--symbol is missing: an account trades one of the data's symbols; known: {known}")
    if wanted and wanted not in history.symbols:
        raise UserError(f"--symbol {shown(wanted)}: not among the symbols of the data and the model; known: {known}")
    return wanted or history.symbols[0]


def _row_of_last_day(
    before: PaperAccount, request: TradeRequest, rows: NDArray[np.int64], history: History, model: str
) -> int:
    """The place in `rows` of the account's last day; refuses what the account cannot go on with."""
    name, days = f"account {shown_path(str(request.account))}", history.day[rows]
    last, newest = date.fromisoformat(before.day).toordinal(), date.fromordinal(int(days[-1]))
    if before.model != model:
        raise UserError(f"{name}: was begun by another model, whose memory it has; name another --account")
    if before.bankrupt:
        raise UserError(f"{name}: went bankrupt on {before.day}; name another --account to begin anew")
    if newest.toordinal() <= last:
        raise UserError(
            f"{name}: has decided on {before.day} already, and the newest day of {shown(before.symbol)} in the data is "
            f"{newest}; give data with a later day"
        )
    place = int(np.searchsorted(days, last))
    if days[place] != last or place < WARM_UP:
        raise UserError(
            f"{name}: its last day is {before.day}, which the data does not have after {WARM_UP} earlier ones; "
            f"give data that goes back further"
        )
    price = float(history.bars[rows[place], CLOSE])
    if history.chains is not None and abs(price / before.close - 1.0) > _CORRECTED:
        raise UserError(
            f"{name}: the price of {before.day} is {price:,.4f} now and was {before.close:,.4f}: it has been adjusted, "
            "and the contracts of --chains are not; give bars that are not adjusted"
        )
    return place


@dataclass
class _Trader:
    """The environment with one account, and the policy."""

    env: TradingEnv
    history: History
    player: PolicyPlayer
    trained: tuple[int, int]
    """The first and the last day of the training."""
    decisions: list[Decision]
    note: str = ""
    bankrupt: bool = False

    def account(self) -> dict[str, Tensor]:
        """The account's part of the environment's state."""
        state = self.env.state()
        return {name.removeprefix(_PREFIX): part for name, part in state.items() if name.startswith(_PREFIX)}

    def begin(self, row: int) -> None:
        """Decide on an account's first day."""
        self._decide(row, self.env.start_at(torch.tensor([row])))

    def catch_up(self, before: PaperAccount, rows: NDArray[np.int64], place: int) -> None:
        """Execute the last day's action, then decide on each day after it."""
        self._restore(before, int(rows[place]))
        action = before.action
        for row in rows[place + 1 :].tolist():
            # Not `step`, which would give a bankrupt account new capital.
            transition = self.env.advance(torch.tensor([ACTIONS.index(action)]))
            self.bankrupt = bool(transition.info["bankrupt"][0])
            action = self._decide(row, transition.observation)
            if self.bankrupt:
                return

    def _restore(self, before: PaperAccount, row: int) -> None:
        self.env.start_at(torch.tensor([row]))
        price = float(self.env.market.spot[0])
        factor = price / before.close
        account, first_price = before.account, before.first_price
        # Recorded contracts are what they were: their strikes are in the prices of their day.
        if abs(factor - 1.0) > _SAME_PRICE and self.history.chains is None:
            account, first_price = _rescaled(account, factor), first_price * factor
            self.note = (
                f"the price of {before.day} is {price:,.4f} now and was {before.close:,.4f}: it has been adjusted, and "
                "so were the positions, at the same value"
            )
        state = self.env.state() | {f"{_PREFIX}{name}": part for name, part in account.items()}
        state["market.first_spot"] = torch.tensor([first_price], dtype=torch.float64)
        self.env.load(state)
        self.player.remember(1, dict(before.memory))

    def _decide(self, row: int, observation: Tensor) -> str:
        account = self.env.account
        if int(account.steps[0]) >= int(self.env.limit[0]):
            # The policy has only learned from episodes of that length: a new one begins, with the account as it is.
            account.steps.zero_()
            self.player.forget()
            observation = self.env.restart(torch.zeros(1, dtype=torch.bool))
        probabilities = self._probabilities(observation)
        without = self._without(observation)
        action = int(self.player.act(observation)[0])
        day = int(self.history.day[row])
        self.decisions.append(
            Decision(
                day=str(date.fromordinal(day)),
                price=float(self.env.market.spot[0]),
                value=float(account.value[0]),
                cash=float(account.cash[0]),
                positions=int(account.positions.open[0].sum()),
                action=ACTIONS[action],
                probabilities=dict(zip(ACTIONS, probabilities.tolist(), strict=True)),
                without={name: float(other[action]) for name, other in without.items()},
                trained_on=self.trained[0] <= day <= self.trained[1],
            )
        )
        return ACTIONS[action]

    def _probabilities(self, observation: Tensor) -> Tensor:
        """(A,) the probabilities of all actions; the memory stays as it is."""
        found = self.player.probabilities(observation)
        assert found is not None  # Actions are discrete.
        return found[0]

    def _without(self, observation: Tensor) -> dict[str, Tensor]:
        """The probabilities with a part of the observation, or the memory, replaced by zeros."""
        found = {}
        for name, place in parts(symbols_told(self.env.settings, self.history)).items():
            changed = observation.clone()
            changed[:, place] = 0.0
            found[name] = self._probabilities(changed)
        if memory := self.player.memory(1):
            self.player.forget()
            found["memory"] = self._probabilities(observation)
            self.player.remember(1, memory)
        return found

    def execute(self) -> tuple[int, float, float]:
        """Execute the last action; returns contracts opened, dollars paid and costs. The account is not usable then."""
        account, cash = self.env.account, float(self.env.account.cash[0])
        account.trade(torch.tensor([ACTIONS.index(self.decisions[-1].action)]), self.env.market.spot, self.env.chain)
        return int(account.opened[0]), cash - float(account.cash[0]), float(account.costs[0])


def _rescaled(account: Tensors, factor: float) -> dict[str, Tensor]:
    """The positions after a split: the same value at a price that is `factor` times what it was."""
    by_price, by_size = ("strike", "listed"), ("quantity", "naked")
    found = {name: part * factor if name in by_price else part for name, part in account.items()}
    return {name: part / factor if name in by_size else part for name, part in found.items()}


def _kept(trader: _Trader, request: TradeRequest, before: PaperAccount | None, symbol: str, model: str) -> TradingDays:
    """Write the account, and tell what was decided."""
    today, first = trader.decisions[-1], trader.decisions[0]
    began = before.began if before else first.day
    PaperAccount(
        model=model,
        symbol=symbol,
        began=began,
        day=today.day,
        close=today.price,
        first_price=float(trader.env.market.first_spot[0]),
        action=today.action,
        bankrupt=trader.bankrupt,
        account=trader.account(),
        memory=trader.player.memory(1),
    ).write(request.account)
    contracts, paid, costs = (0, 0.0, 0.0) if trader.bankrupt else trader.execute()
    return TradingDays(
        symbol=symbol,
        began=began,
        profit=today.value - trader.env.settings.initial_capital,
        decisions=trader.decisions,
        contracts=contracts,
        paid=paid,
        costs=costs,
        bankrupt=trader.bankrupt,
        file=str(request.account),
        # What is to be known about the files is said once, when the account begins.
        notes=tuple(filter(None, (*(() if before else trader.history.notes), trader.note))),
    )
