"""Shows a policy trading: the blotter of an episode, and an animated chart of the price and the account."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

from lockstep.envs.vector_env import Transition
from lockstep.reporting.drawing.chart import DARK, Chart, Charts, Marks
from lockstep.reporting.film import Scene
from lockstep.reporting.text_table import aligned_lines, total_width
from lockstep.workloads.trading.account.actions import ACTIONS, CLOSE_ALL
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.data_record import how_many_trained_on
from lockstep.workloads.trading.market.history import History, load_history
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.reports.baselines import TRADERS

_HEAD = ("day", "price", "action", "contracts", "traded $", "costs $", "closed", "realised $", "open", "account $")
_LEAST_NEEDED = ("costs $", "contracts", "closed")
"""Columns that a narrow terminal goes without, in this order."""
_PICTURE = (640, 240)  # Pixels of one chart; a frame has two, one above the other.
_OPENED, _CLOSED = (74, 222, 128), (251, 146, 60)


class Act(Protocol):
    """Maps observations (1, ...) to actions (1,) and, if available, the probabilities they were drawn with."""

    def __call__(self, observation: Tensor, begins: bool = False) -> tuple[Tensor, Tensor | None]:
        """`begins`: this is the first observation of an episode."""


@dataclass
class Day:
    """What happened to the account in one step."""

    number: int
    env: TradingEnv
    price: float
    """The price at which the action was executed."""
    action: int
    transition: Transition
    score: float
    """Sum of the rewards so far."""

    @property
    def traded(self) -> bool:
        """Whether anything was opened, closed or expired."""
        account = self.env.account
        return bool(account.opened[0]) or bool(account.closed[0])

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return bool(self.transition.terminated | self.transition.truncated)

    def cells(self) -> list[str]:
        """The day as a row of the blotter."""
        account = self.env.account
        opened, closed = int(account.opened[0]), int(account.closed[0])
        # Options that expire, or are closed by a margin call, are not the policy's action.
        action = ACTIONS[self.action] if opened or self.action == CLOSE_ALL or not closed else "settled"
        contracts, realised = f"{opened}" if opened else "", f"{float(account.realised[0]):,.2f}" if closed else ""
        return [
            str(self.number),
            f"{self.price:.2f}",
            action,
            contracts,
            f"{float(account.traded[0]):,.2f}",
            f"{float(account.costs[0]):,.2f}",
            f"{closed or ''}",
            realised,
            str(int(account.positions.open[0].sum())),
            f"{float(account.value[0]):,.2f}",
        ]


def blotter(
    settings: MarketSettings,
    act: Act | str,
    seed: int,
    trained_on: Mapping[str, str] | None = None,
    width: int | None = None,
) -> Iterator[tuple[list[str], float]]:
    """Yield the trades and the reward of one episode after another: the episodes of an evaluation with this seed.

    `act`: a network's policy, or the name of one of TRADERS. `trained_on`: the policy's `data_record`, if it has one.
    `width`: columns of the terminal; None = no limit.
    """
    history = load_history(settings) if settings.data else None
    for number in count():
        env, days = _episode(settings, act, seed, number, history)
        about = ""
        if history is not None:
            row = int(env.market.row[0])
            dates = history.day[row : row + int(env.limit[0]) + 1]
            first, last = (date.fromordinal(int(day)) for day in dates[[0, -1]])
            about = f" of {history.symbols[int(history.symbol[row])]}, days from {first} to {last}"
            about += "" if isinstance(act, str) else f", {how_many_trained_on(dates, trained_on)}"
        # `env` is the state of the current day: each line is made before the next day is traded.
        heading = f"Episode {number + 1}{about}: {settings.initial_capital:,.2f} dollars"
        rows = []
        for day in days:
            rows += [day.cells()] if day.traded else []
        yield [heading, *_table(rows, width), *_statement(day)], day.score


def _table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Rows of cells below their head, without the columns that are needed least where the terminal is too narrow."""
    head = list(_HEAD)
    for name in _LEAST_NEEDED:
        if width is None or total_width(head, rows) <= width:
            break
        place = head.index(name)
        head, *rows = ([*cells[:place], *cells[place + 1 :]] for cells in (head, *rows))
    action = head.index("action")
    return aligned_lines(head, rows, [place == action for place in range(len(head))], (action,), width)


def _statement(day: Day) -> list[str]:
    """The results of an episode, in two lines."""
    info = {name: float(value[0]) for name, value in day.transition.info.items()}
    end = "bankrupt" if info["bankrupt"] else f"{day.number} days"
    return [
        f"{end}: Return: ${info['profit']:,.2f}, Win Rate: {info['win_rate']:.1%} ({info['closed_trades']:.0f} closed, "
        f"{info['open_positions']:.0f} open), costs ${info['costs']:,.2f}",
        f"Sharpe {_ratio(info['sharpe'])}, Sortino {_ratio(info['sortino'])}, drawdown {info['drawdown']:.1%}, "
        f"turnover {info['turnover']:.2f}, exposure {info['exposure']:.2f}, underlying {info['underlying']:+.1%}",
    ]


def _ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


@dataclass
class _Course:
    """An episode so far."""

    prices: list[float]
    values: list[float]
    """The account, in dollars."""
    opened: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    """Days on which contracts were bought or sold, and on which they were closed, expired or were assigned."""

    def add(self, day: Day) -> None:
        """Append a day."""
        self.prices.append(float(day.env.market.spot[0]))
        self.values.append(float(day.env.account.value[0]))
        # An action is executed at the price that the day began with; contracts expire at its end.
        if int(day.env.account.opened[0]):
            self.opened.append(day.number - 1)
        if int(day.env.account.closed[0]):
            self.closed.append(day.number - (day.action == CLOSE_ALL))

    def drawing(self, days: int) -> Charts:
        """The price with the trades above, the account below; `days`: of the whole episode."""
        marks = Marks("opened", list(self.opened), _OPENED), Marks("closed", list(self.closed), _CLOSED, up=False)
        # Copies: the lists grow before a drawing is painted.
        return Charts(
            [
                Chart("price of the underlying", {"price": list(self.prices)}, days, None, marks, _PICTURE, DARK),
                Chart("account, dollars", {"account": list(self.values)}, days, size=_PICTURE, theme=DARK),
            ]
        )


def scenes(settings: MarketSettings, act: Act | str, seed: int) -> Iterator[Scene]:
    """Yield a scene for every day of endless episodes: those of an evaluation with this seed."""
    history = load_history(settings) if settings.data else None
    for number in count():
        env, days = _episode(settings, act, seed, number, history)
        course = _Course([float(env.market.spot[0])], [settings.initial_capital])
        for day in days:
            course.add(day)
            growth = course.values[-1] / settings.initial_capital - 1
            action = ACTIONS[day.action].replace("_", " ")
            yield Scene(
                text="\n".join(_table([day.cells()], None)),
                image=course.drawing(int(env.limit[0])),
                caption=f"day {day.number}   {action}   account {course.values[-1]:,.0f} ({growth:+.1%})",
                score=day.score,
                ended=day.ended,
            )


def _episode(
    settings: MarketSettings, act: Act | str, seed: int, number: int, history: History | None
) -> tuple[TradingEnv, Iterator[Day]]:
    """The environment and the days of one episode, given its number."""
    # Account `number` of an evaluation starts with the same market, so this is that account's first episode.
    env = TradingEnv(
        settings,
        torch.tensor([number]),
        seed,
        torch.device("cpu"),
        history=history,
        historical=history is not None,
        split=settings.evaluation_split,
    )
    observation = env.reset()
    return env, _days(env, act, observation)


def _days(env: TradingEnv, act: Act | str, observation: Tensor) -> Iterator[Day]:
    score = 0.0
    for number in count(1):
        price = float(env.market.spot[0])
        action = TRADERS[act](env) if isinstance(act, str) else act(observation, begins=number == 1)[0]
        # `advance`, not `step`: the account must not restart before its last day was shown.
        transition = env.advance(action)
        observation, score = transition.observation, score + float(transition.reward)
        day = Day(number, env, price, int(action), transition, score)
        yield day
        if day.ended:
            return
