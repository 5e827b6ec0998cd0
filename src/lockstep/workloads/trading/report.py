"""How a trained policy compares: with itself without memory, with traders without a network, on unseen days."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.core.distributed.world import World
from lockstep.core.learner import Evaluation
from lockstep.parts.evaluation import Act, evaluate
from lockstep.workloads.trading import chart
from lockstep.workloads.trading.baselines import TAG, TRADERS, Interval, equal_risk_profits, evaluate_baseline
from lockstep.workloads.trading.config import TradingConfig
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.history import History, Split, load_history

TRAINED, FORGETFUL, EQUAL_RISK = "trained", "memory_cleared", "equal_risk"
EQUITY = "equity.png"
RATIOS = ("sharpe", "sortino", "drawdown", "turnover", "exposure", "win_rate")


@dataclass(frozen=True)
class Row:
    """One trader's episodes: the profit with its interval, means of the rest, and the mean account day by day."""

    profit: Interval
    ratios: dict[str, float] = field(default_factory=dict)
    equity: NDArray[np.float64] | None = None
    """(T + 1, episodes) dollars."""

    @classmethod
    def of(cls, played: Evaluation, equity: NDArray[np.float64] | None = None) -> "Row":
        """What an evaluation says."""
        ratios = {name: fmean(played.extra[f"{TAG}_{name}"]) for name in RATIOS if f"{TAG}_{name}" in played.extra}
        return cls(Interval.of(played.extra[f"{TAG}_profit"]), ratios, equity)

    def summary(self) -> dict[str, float]:
        """As JSON."""
        return {"profit": self.profit.mean, "low": self.profit.low, "high": self.profit.high, **self.ratios}


@dataclass(frozen=True)
class Section:
    """Everybody on the same episodes of one kind of prices."""

    title: str
    rows: dict[str, Row]

    def lines(self) -> list[str]:
        """A table: profit of an episode with its 95 % interval, then means over episodes."""
        names = ("sharpe", "sortino", "drawdown", "turnover", "exposure", "win rate")
        head = f"{self.title:28}{'profit $':>12}{'95 % interval':>22}" + "".join(f"{name:>10}" for name in names)
        lines = [head]
        for name, row in self.rows.items():
            interval = f"{row.profit.low:,.0f} to {row.profit.high:,.0f}"
            numbers = "".join(f"{row.ratios[key]:10.2f}" if key in row.ratios else f"{'-':>10}" for key in RATIOS)
            lines.append(f"  {name.replace('_', ' '):26}{row.profit.mean:12,.0f}{interval:>22}{numbers}")
        return lines + self._verdict()

    def _verdict(self) -> list[str]:
        """What the numbers say in words: who is beaten beyond doubt, and how much of the told rule's profit is made."""
        mine = self.rows[TRAINED].profit
        others = [name for name in self.rows if name not in (TRAINED, "oracle")]
        beaten = [name for name in others if mine > self.rows[name].profit]
        words = ", ".join(name.replace("_", " ") for name in beaten) or "nobody"
        lines = [f"  above, with intervals that do not touch: {words}"]
        if "oracle" in self.rows:
            lines.append(f"  of what the oracle, who is told the regime, earns: {mine.mean / self.oracle:.0%}")
        return lines

    @property
    def oracle(self) -> float:
        """The mean profit of the rule that is told the regime."""
        return self.rows["oracle"].profit.mean


@dataclass(frozen=True)
class Report:
    """All sections, the last one being what counts most: days that nobody learned from, where there are such."""

    sections: dict[str, Section]

    def summary(self) -> dict[str, Any]:
        """As JSON: by section and trader."""
        return {
            key: {name: row.summary() for name, row in section.rows.items()} for key, section in self.sections.items()
        }

    def table(self) -> str:
        """For people."""
        return "\n\n".join("\n".join(section.lines()) for section in self.sections.values())

    def write(self, folder: Path) -> list[Path]:
        """Draw the mean account of everybody day by day, with the middle 80 % of the trained policy's."""
        section = list(self.sections.values())[-1]
        curves = {name: row.equity for name, row in section.rows.items() if row.equity is not None}
        low, high = np.quantile(curves[TRAINED], (0.1, 0.9), axis=1)
        means = {name: equity.mean(1) for name, equity in curves.items()}
        title = f"account value in dollars, {section.title}: means, and 80 % of the trained policy's episodes"
        path = folder / EQUITY
        chart.draw(means, title, band=chart.Band(low, high, TRAINED)).save(path)
        return [path]


def report(config: TradingConfig, learner: PPOLearner, world: World, episodes: int, seed: int) -> Report:
    """Let the trained policy and everybody else trade the same episodes. Called by every rank."""
    history = load_history(config) if config.data else None
    sections = {}
    simulated = not all(config.is_historical_lane(lane) for lane in range(config.effective_lanes))
    places: list[tuple[str, str, bool, Split]] = [("simulated", f"simulated ({config.market})", False, "train")]
    if history is not None:
        places = places if simulated else []
        places += [("training_days", "days of training", True, "train")]
        places += [("validation_days", "days of validation", True, "validation")] if config.validation_part else []
    for key, title, historical, split in places:
        stage = _Stage(config, world, episodes, seed, history, historical, split)
        sections[key] = Section(title, stage.rows(learner))
    return Report(sections)


class _Stage:
    """Some episodes, for everybody the same."""

    def __init__(
        self,
        config: TradingConfig,
        world: World,
        episodes: int,
        seed: int,
        history: History | None,
        historical: bool,
        split: Split,
    ) -> None:
        self._config, self._world, self._episodes, self._seed = config, world, episodes, seed
        self._history, self._historical, self._split = history, historical, split

    def rows(self, learner: PPOLearner) -> dict[str, Row]:
        """Everybody's results."""
        played, equity = self._play(learner.policy())
        rows = {TRAINED: Row.of(played, equity), FORGETFUL: Row.of(*self._play(learner.policy(remembers=False)))}
        for name, trader in TRADERS.items():
            if name == "oracle" and (self._historical or self._config.market != "regime"):
                continue
            rows[name] = self._buy_and_hold() if name == "buy_and_hold" else Row.of(*self._play(_acting(trader)))
        if self._historical:
            rows[f"buy_and_hold_at_{EQUAL_RISK}"] = Row(Interval.of(equal_risk_profits(played)))
        return rows

    def _play(self, act: Act) -> tuple[Evaluation, NDArray[np.float64]]:
        values: list[Tensor] = []

        def watched(observation: Tensor, env: TradingEnv) -> Tensor:
            values.append(env.account.value.clone())
            return act(observation, env)

        played = evaluate(self._world, self._make_env, watched, self._episodes, self._seed, TAG)
        return played, _curves(torch.stack(values).cpu().numpy(), played)

    def _buy_and_hold(self) -> Row:
        return Row.of(
            evaluate_baseline(
                "buy_and_hold",
                self._config,
                self._world,
                self._episodes,
                self._seed,
                history=self._history,
                historical=self._historical,
                split=self._split,
            )
        )

    def _make_env(self, index: Tensor) -> TradingEnv:
        return TradingEnv(
            self._config,
            index,
            self._seed,
            self._world.device,
            history=self._history,
            historical=self._historical,
            split=self._split,
        )


def _acting(trader: Callable[[TradingEnv], Tensor]) -> Act:
    return lambda _, env: trader(env)


def _curves(values: NDArray[np.float64], played: Evaluation) -> NDArray[np.float64]:
    """(T + 1, episodes) what each account was worth, from its first day to the end, where it stays."""
    longest = max(played.lengths)
    curves = np.concatenate((values[:longest], np.zeros_like(values[:1])))
    for episode, (length, last) in enumerate(zip(played.lengths, played.extra[f"{TAG}_value"], strict=True)):
        curves[length:, episode] = last
    return curves
