"""How a trained policy compares: with itself without memory, with traders without a network, on unseen days.

T: days, N: episodes.
"""

from collections.abc import Callable
from datetime import date
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import Act, evaluate
from lockstep.workloads.trading.baselines import TAG, TRADERS, Interval, hold
from lockstep.workloads.trading.comparison import EQUAL_RISK, FORGETFUL, RATIOS, TRAINED, Report, Row, Section, Span
from lockstep.workloads.trading.config import TradingConfig
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.history import TRADING_DAYS, History, Split, load_history
from lockstep.workloads.trading.pricing import DAYS_PER_YEAR

Numbers = NDArray[np.float64]


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
        sections[key] = stage.section(title, learner)
    return Report(sections)


def evaluate_judged(config: TradingConfig, learner: PPOLearner, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate a trained policy where it is judged: on unseen days, where there is data. Called by every rank."""
    history = load_history(config) if config.data else None
    stage = _Stage(config, world, episodes, seed, history, history is not None, config.judged_on)
    return stage.evaluate(learner.policy())


class _Stage:
    """Some episodes, for everybody the same: on days of the history, or simulated."""

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
        self._year = TRADING_DAYS if historical else DAYS_PER_YEAR
        self._apart = history.apart(split, config.episode_length) if history and historical else None

    def section(self, title: str, learner: PPOLearner) -> Section:
        """Everybody's results."""
        trained = self._row(learner.policy())
        rows = {TRAINED: trained, FORGETFUL: self._row(learner.policy(remembers=False))}
        for name, trader in TRADERS.items():
            if name == "oracle" and (self._historical or self._config.market != "regime"):
                continue
            rows[name] = self._buy_and_hold() if name == "buy_and_hold" else self._row(_acting(trader))
        if not self._historical:
            return Section(title, rows)
        held = rows["buy_and_hold"]
        assert held.equity is not None
        # Prices that never move have no risk to be scaled.
        scale = trained.ratios["volatility"] / (held.ratios["volatility"] or np.inf)
        rows[EQUAL_RISK] = self._passive(scale * held.equity + (1.0 - scale) * self._config.initial_capital)
        return Section(title, rows, self._span(scale))

    def _span(self, scale: float) -> Span:
        assert self._history is not None and self._apart is not None
        starts, length = self._history.starts(self._split, self._config.episode_length)
        days = self._history.day
        first, last = date.fromordinal(int(days[starts].min())), date.fromordinal(int(days[starts + length].max()))
        return Span(str(first), str(last), self._episodes, length, self._apart, scale)

    def evaluate(self, act: Act) -> Evaluation:
        """Let somebody trade the episodes. Called by every rank."""
        return evaluate(self._world, self._make_env, act, self._episodes, self._seed, TAG)

    def _row(self, act: Act) -> Row:
        played, values = self._watched(act, lambda env: env.account.value)
        told = {name.removeprefix(f"{TAG}_"): numbers for name, numbers in played.extra.items()}
        ratios = {"volatility": self._volatility(np.array(told["risk"]))}
        ratios |= {name: fmean(told[name]) for name in RATIOS if name in told}
        return Row(Interval.of(told["profit"], self._apart), ratios, curves(values, played.lengths, told["value"]))

    def _buy_and_hold(self) -> Row:
        """The initial capital in the underlying on the first day."""
        watched, prices = self._watched(_acting(hold), lambda env: env.market.spot)
        growth = 1.0 + np.array(watched.extra[f"{TAG}_underlying"])
        prices = curves(prices, watched.lengths, (prices[0] * growth).tolist())
        return self._passive(self._config.initial_capital * prices / prices[0])

    def _passive(self, equity: Numbers) -> Row:
        """A row of what an account (T + 1, N) without trades is worth day by day."""
        change = np.diff(equity, axis=0)
        risk, mean = change.std(0), change.mean(0)
        falls = np.sqrt(np.square(np.minimum(change, 0.0)).mean(0))
        peak = np.maximum.accumulate(equity)
        ratios = {
            "volatility": self._volatility(risk),
            "sharpe": float(_ratio(mean, risk).mean()) * self._year**0.5,
            "sortino": float(_ratio(mean, falls).mean()) * self._year**0.5,
            "drawdown": float((1.0 - equity / peak).max(0).mean()),
        }
        return Row(Interval.of((equity[-1] - equity[0]).tolist(), self._apart), ratios, equity)

    def _volatility(self, risk: Numbers) -> float:
        """Of all episodes together, for a year, from the deviations (N,) of their daily changes in dollars."""
        return float(np.sqrt(np.square(risk).mean() * self._year)) / self._config.initial_capital

    def _watched(self, act: Act, look: Callable[[TradingEnv], Tensor]) -> tuple[Evaluation, Numbers]:
        """The episodes, and what was looked at (T, N) before every step."""
        seen: list[Tensor] = []

        def watching(observation: Tensor, env: TradingEnv) -> Tensor:
            seen.append(look(env).clone())
            return act(observation, env)

        played = self.evaluate(watching)
        return played, torch.stack(seen).cpu().numpy()

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


def _ratio(mean: Numbers, deviation: Numbers) -> Numbers:
    return np.divide(mean, deviation, out=np.zeros_like(mean), where=deviation > 0)


def curves(values: Numbers, lengths: list[int], last: list[float]) -> Numbers:
    """(T + 1, N) what was seen (T, N) day by day, and at the end of each episode its last value, which then stays."""
    longest = max(lengths)
    found = np.concatenate((values[:longest], np.zeros_like(values[:1])))
    for episode, (length, value) in enumerate(zip(lengths, last, strict=True)):
        found[length:, episode] = value
    return found
