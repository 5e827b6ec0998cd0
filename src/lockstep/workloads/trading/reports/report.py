"""Compares a trained policy with itself without memory and with baselines, also on days kept from training.

T: days, N: episodes.
"""

from collections.abc import Callable
from datetime import date

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation, mean_of_defined
from lockstep.rl.evaluation import Act, evaluate
from lockstep.run.learner import Learner
from lockstep.workloads.trading.account.statement import LEAST_RISK
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.history import TRADING_DAYS, History, Split, load_history
from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR
from lockstep.workloads.trading.reports.baselines import TAG, TRADERS, hold
from lockstep.workloads.trading.reports.comparison import (
    EQUAL_RISK,
    FORGETFUL,
    RATIOS,
    TRAINED,
    Interval,
    Report,
    Row,
    Section,
    Span,
)
from lockstep.workloads.trading.settings import TradingConfig, TradingSettings

Numbers = NDArray[np.float64]


def report(config: TradingConfig, learner: Learner, world: World, episodes: int, seed: int) -> Report:
    """Let the trained policy and all baselines trade the same episodes. Called by every rank."""
    settings = config.workload
    history = load_history(settings) if settings.data else None
    simulated = not all(settings.lanes_with_history(config.effective_lanes))
    # (key, title, whether on real prices, days); the key is a key of the JSON report.
    places: list[tuple[str, str, bool, Split]] = [("simulated", f"simulated ({settings.market})", False, "train")]
    if history is not None:
        # Simulated prices only if some lanes were trained on them.
        places = places if simulated else []
        # Titles say what is so for any model: its run may have split the days in another way.
        before, kept = _titles(settings, history)
        # Of later data than a model was trained on there may be no earlier days.
        places += [("training_days", before, True, "train")] if kept == "" or history.has("train") else []
        places += [("validation_days", kept, True, "validation")] if kept else []
    sections = {}
    for key, title, historical, split in places:
        evaluator = _Evaluator(settings, world, episodes, seed, history, historical, split)
        sections[key] = evaluator.section(title, _policies(config, learner))
    return Report(sections)


def _titles(settings: TradingSettings, history: History) -> tuple[str, str]:
    """Of the days before those that are kept from training, and of those; the latter is empty if there are none."""
    if settings.validation_from:
        first = date.fromordinal(history.validation_day)
        return f"days before {first}", f"days from {first} on"
    part = settings.validation_part
    return f"first {1 - part:.0%} of the days", f"last {part:.0%} of the days" if part else ""


def _policies(config: TradingConfig, learner: Learner) -> dict[str, Act]:
    """The trained policy and, if its network is recurrent, the same without memory."""
    learner = _as_ppo(learner)
    policies = {TRAINED: learner.policy()}
    return policies | ({FORGETFUL: learner.policy(remembers=False)} if config.network.recurrent else {})


def _as_ppo(learner: Learner) -> PPOLearner:
    """The learner, typed as PPO's, which is trading's only algorithm; other learners need not have a `policy`."""
    assert isinstance(learner, PPOLearner)
    return learner


def judge(settings: TradingSettings, learner: Learner, world: World) -> Callable[[int, int], Evaluation]:
    """A function that evaluates a trained policy: on validation days, if there is data."""
    history = load_history(settings) if settings.data else None

    def evaluate_judged(episodes: int, seed: int) -> Evaluation:
        evaluator = _Evaluator(settings, world, episodes, seed, history, history is not None, settings.evaluation_split)
        return evaluator.evaluate(_as_ppo(learner).policy())

    return evaluate_judged


class _Evaluator:
    """Evaluates every trader on the same episodes: on days of the history, or simulated ones."""

    def __init__(
        self,
        settings: TradingSettings,
        world: World,
        episodes: int,
        seed: int,
        history: History | None,
        historical: bool,
        split: Split,
    ) -> None:
        self._settings, self._world, self._episodes, self._seed = settings, world, episodes, seed
        self._history, self._historical, self._split = history, historical, split
        # Steps in a year, to annualise ratios.
        self._year = TRADING_DAYS if historical else DAYS_PER_YEAR
        self._independent = (
            history.independent_episodes(split, settings.episode_length) if history and historical else None
        )

    def section(self, title: str, policies: dict[str, Act]) -> Section:
        """The results of all traders; `policies`: those with a network, by name, including TRAINED."""
        rows = {name: self._row(act) for name, act in policies.items()}
        for name, trader in TRADERS.items():
            # The oracle needs a hidden regime to know.
            if name == "oracle" and (self._historical or self._settings.market != "regime"):
                continue
            rows[name] = self._buy_and_hold() if name == "buy_and_hold" else self._row(_acting(trader))
        if not self._historical:
            return Section(title, rows)
        # A fair benchmark on real days: buy-and-hold that takes the same risk as the trained policy.
        held = rows["buy_and_hold"]
        assert held.equity is not None
        # Prices that never move have no risk to scale; dividing by infinity gives a scale of 0.
        scale = (rows[TRAINED].ratios["volatility"] or 0.0) / (held.ratios["volatility"] or np.inf)
        rows[EQUAL_RISK] = self._passive(scale * held.equity + (1.0 - scale) * self._settings.initial_capital)
        return Section(title, rows, self._span(scale))

    def _span(self, scale: float) -> Span:
        """The days that the episodes may use; an episode from `start` ends at `start + length`."""
        assert self._history is not None and self._independent is not None
        starts, length = self._history.starts(self._split, self._settings.episode_length)
        days = self._history.day
        first, last = date.fromordinal(int(days[starts].min())), date.fromordinal(int(days[starts + length].max()))
        return Span(str(first), str(last), self._episodes, length, self._independent, scale)

    def evaluate(self, act: Act) -> Evaluation:
        """Let a trader play the episodes. Called by every rank."""
        return evaluate(self._world, self._make_env, act, self._episodes, self._seed, TAG)

    def _row(self, act: Act) -> Row:
        """The row of a trader, from the results that its episodes report and its value day by day."""
        played, values = self._watched(act, lambda env: env.account.value)
        info = {name.removeprefix(f"{TAG}_"): numbers for name, numbers in played.extra.items()}
        ratios: dict[str, float | None] = {"volatility": self._volatility(np.array(info["risk"]))}
        ratios |= {name: mean_of_defined(info[name]) for name in RATIOS if name in info}
        return Row(
            Interval.of(info["profit"], self._independent), ratios, curves(values, played.lengths, info["value"])
        )

    def _buy_and_hold(self) -> Row:
        """The row of investing the initial capital in the underlying on the first day."""
        # `hold` makes no trades: its episodes only supply the prices.
        watched, prices = self._watched(_acting(hold), lambda env: env.market.spot)
        growth = 1.0 + np.array(watched.extra[f"{TAG}_underlying"])
        prices = curves(prices, watched.lengths, (prices[0] * growth).tolist())
        return self._passive(self._settings.initial_capital * prices / prices[0])

    def _passive(self, equity: Numbers) -> Row:
        """The row of an account that never trades, from its value (T + 1, N) day by day."""
        change = np.diff(equity, axis=0)
        risk, mean = change.std(0), change.mean(0)
        falls = np.sqrt(np.square(np.minimum(change, 0.0)).mean(0))
        peak = np.maximum.accumulate(equity)
        ratios: dict[str, float | None] = {
            "volatility": self._volatility(risk),
            "sharpe": mean_of_defined(self._ratio(mean, risk)),
            "sortino": mean_of_defined(self._ratio(mean, falls)),
            "drawdown": float((1.0 - equity / peak).max(0).mean()),
        }
        return Row(Interval.of((equity[-1] - equity[0]).tolist(), self._independent), ratios, equity)

    def _ratio(self, mean: Numbers, risk: Numbers) -> list[float]:
        """Yearly mean / risk of each episode; NaN where it hardly has any, as in `statement`."""
        enough = risk > LEAST_RISK * self._settings.initial_capital
        ratios = np.divide(mean, risk, out=np.full_like(mean, np.nan), where=enough)
        return (ratios * self._year**0.5).tolist()

    def _volatility(self, risk: Numbers) -> float:
        """Yearly, over all episodes, from the standard deviations (N,) of their daily changes in dollars."""
        return float(np.sqrt(np.square(risk).mean() * self._year)) / self._settings.initial_capital

    def _watched(self, act: Act, look: Callable[[TradingEnv], Tensor]) -> tuple[Evaluation, Numbers]:
        """The episodes, and the values (T, N) of `look` before every step."""
        # Cloned, because the environment updates its tensors in place.
        seen: list[Tensor] = []

        def watching(observation: Tensor, env: TradingEnv) -> Tensor:
            seen.append(look(env).clone())
            return act(observation, env)

        played = self.evaluate(watching)
        # One copy from the device at the end, not one a step.
        return played, torch.stack(seen).cpu().numpy()

    def _make_env(self, index: Tensor) -> TradingEnv:
        return TradingEnv(
            self._settings,
            index,
            self._seed,
            self._world.device,
            history=self._history,
            historical=self._historical,
            split=self._split,
        )


def _acting(trader: Callable[[TradingEnv], Tensor]) -> Act:
    return lambda _, env: trader(env)


def curves(values: Numbers, lengths: list[int], last: list[float]) -> Numbers:
    """(T + 1, N): the values (T, N) day by day, with each episode's last value repeated from its end on."""
    # Accounts restart within the step that ends their episode: later values belong to their next one.
    longest = max(lengths)
    found = np.concatenate((values[:longest], np.zeros_like(values[:1])))
    for episode, (length, value) in enumerate(zip(lengths, last, strict=True)):
        found[length:, episode] = value
    return found
