"""Progress lines of a run in the guide's format: episodes, running averages, updates, evaluations."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.workloads.trading.settings import TradingConfig

if TYPE_CHECKING:
    from lockstep.distributed.world import World

WINDOW = 100
"""Episodes of the running averages, at least, as in the guide."""
_LINES_BETWEEN_AVERAGES = 10


@dataclass(frozen=True)
class EndedEpisodes:
    """The episodes that ended since the last log point, as means."""

    count: float
    reward: float
    profit: float
    closed: float
    won: float
    open: float
    steps: float

    @classmethod
    def read(cls, metrics: Mapping[str, float]) -> "EndedEpisodes | None":
        """Read them from a log point's metrics; None if no episode ended."""
        if not metrics.get("rollout/episodes"):
            return None
        names = ("profit", "closed_trades", "winning_trades", "open_positions")
        profit, closed, won, still_open = (metrics[f"trading/{name}_mean"] for name in names)
        reward, steps = metrics["rollout/return_mean"], metrics["rollout/length_mean"]
        return cls(metrics["rollout/episodes"], reward, profit, closed, won, still_open, steps)

    @property
    def win_rate(self) -> float:
        """The fraction of closed positions that earned money; 0 if none was closed, as in the guide."""
        return self.won / self.closed if self.closed else 0.0

    def __str__(self) -> str:
        """In the guide's format."""
        if not self.closed and self.open:
            unrealised = f" (unrealized from {_number(self.open)} open positions)"
            return f"Return: {_dollars(self.profit)}{unrealised}, Win Rate: 0.0% (0 closed trades)"
        held = f"({_number(self.closed)} closed, {_number(self.open)} open)"
        return f"Return: {_dollars(self.profit)}, Win Rate: {self.win_rate:.1%} {held}"


class Narrator:
    """Turns log points into lines; remembers the last episodes and the best."""

    def __init__(self, config: TradingConfig, ranks: int, on_gpus: bool) -> None:
        self._planned = max(config.length // config.workload.episode_length, 1)
        """Episodes of the whole run, over all ranks, if none ends early."""
        # Steps of an update, over all ranks.
        self._update = config.algorithm.rollout_size
        self._suffix = f" | {'GPUs' if on_gpus else 'Ranks'}: {ranks}" if ranks > 1 else ""
        self._recent: deque[EndedEpisodes] = deque()
        self._ended = 0.0
        self._lines = 0
        self._best_average = self._best_evaluation = -math.inf

    def __call__(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """The lines of one log point."""
        lines = []
        episodes = EndedEpisodes.read(metrics)
        if episodes is not None:
            lines += self._episode_lines(episodes)
        if "train/policy_loss" in metrics:
            critic, actor = metrics["train/value_loss"], metrics["train/policy_loss"]
            lines.append(f"Update {step // self._update:,} - Critic Loss: {critic:.4f}, Actor Loss: {actor:.4f}")
        if "eval/trading_profit_mean" in metrics:
            lines.append(self._evaluation_line(metrics))
        return lines

    def _episode_lines(self, episodes: EndedEpisodes) -> list[str]:
        """The line of an episode and, after every tenth, that of the running averages."""
        self._ended += episodes.count
        self._recent.append(episodes)
        # A log point is kept or dropped as a whole: keep as few as have WINDOW episodes.
        while sum(part.count for part in self._recent) - self._recent[0].count >= WINDOW:
            self._recent.popleft()
        # More episodes than planned end if some go bankrupt.
        number = f"Episode {self._ended:.0f}/{max(self._planned, round(self._ended))}"
        line = f"{number} - Reward: {episodes.reward:.2f}, {episodes}, Steps: {_number(episodes.steps)}{self._suffix}"
        self._lines += 1
        if self._lines % _LINES_BETWEEN_AVERAGES:
            return [line]
        return [line, self._average()]

    def _average(self) -> str:
        """The averages over the last episodes, with log points weighted by their number of episodes."""
        total = sum(part.count for part in self._recent)

        def mean(name: str) -> float:
            return sum(part.count * getattr(part, name) for part in self._recent) / total

        profit, closed = mean("profit"), mean("closed")
        self._best_average = max(self._best_average, profit)
        win_rate = mean("won") / closed if closed else 0.0
        return (
            f"Last {total:.0f} episodes - Return: {_dollars(profit)}, Win Rate: {win_rate:.1%}, "
            f"best average so far: {_dollars(self._best_average)}"
        )

    def _evaluation_line(self, metrics: Mapping[str, float]) -> str:
        """The result of an evaluation. The best one has the highest mean reward, as for the model in `best/`."""
        better = metrics["eval/return_mean"] > self._best_evaluation
        self._best_evaluation = max(self._best_evaluation, metrics["eval/return_mean"])
        verdict = "the best so far" if better else f"best so far: {self._best_evaluation:.2f}"
        profit = _dollars(metrics["eval/trading_profit_mean"])
        return f"Evaluation - Reward: {metrics['eval/return_mean']:.2f}, Return: {profit} ({verdict})"


def narrator(config: TradingConfig, world: "World") -> Narrator:
    """The narrator for a run in this world."""
    return Narrator(config, world.size, world.device.type == "cuda")


def _dollars(amount: float) -> str:
    return f"-${-amount:,.2f}" if amount < 0 else f"${amount:,.2f}"


def _number(mean: float) -> str:
    """A mean with one decimal, or with none if it rounds to a whole number."""
    return f"{mean:.0f}" if abs(mean - round(mean)) < 0.05 else f"{mean:.1f}"
