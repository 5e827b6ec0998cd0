"""Optional capabilities of workloads, one small protocol each. A workload has a capability if it has its methods."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from lockstep.errors import UserError
from lockstep.workloads.contests import Contests, HoldsArenas, Results

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.world import World
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.reporting.film import Scene
    from lockstep.rl.env_check import Finding
    from lockstep.run.learner import Learner

Acting = Any
"""Who plays: a function from observations to actions, or a baseline by its name."""


@dataclass(frozen=True)
class PlayRequest:
    """What `lockstep play` asks a workload to show."""

    config: Any
    act: Acting
    seed: int
    """Seed of the episodes."""
    pictures: bool = False
    """Whether images are needed; drawing them can be slow."""
    only: str = ""
    """The task to show, if the model has several; empty = all of them in turn."""
    data: str = ""
    """Data to show instead of the model's own."""
    bad_files: str = ""
    """What to do with unreadable files of that data; empty = as the model's run did."""
    trained_on: Mapping[str, str] | None = None
    """Facts about the data that were kept with the model; None = unknown."""
    columns: int | None = None
    """Of the terminal, for what is shown as a table; None = no limit."""


class Comparison(Protocol):
    """A workload's own report on a model."""

    def summary(self) -> dict[str, Any]:
        """As JSON, for evaluation.json."""

    def table(self) -> str:
        """As text."""

    def write(self, folder: Path) -> list[Path]:
        """Draw charts into a folder; returns their paths."""


@runtime_checkable
class Plays(Protocol):
    """Can be watched."""

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Play one episode after another, yielding a scene after every step."""


@runtime_checkable
class PlaysOneTask(Protocol):
    """Has several tasks, each of which can be watched alone."""

    def check_task(self, config: Any, task: str) -> None:
        """Raise UserError if the configuration has no such task."""


@runtime_checkable
class KeepsBlotter(Protocol):
    """Lists the trades of an episode line by line, as a trader's blotter does; it says more than an image."""

    def blotter(self, request: PlayRequest) -> Iterator[tuple[list[str], float]]:
        """Play one episode after another, yielding the lines of its blotter and its return."""


@runtime_checkable
class LogsGames(Protocol):
    """Writes games to files, and replays them."""

    def write_log(self, config: Any, act: Acting, seed: int, path: Path) -> None:
        """Play the first game of a seed and write everything about it to a file."""

    def read_log(self, path: Path) -> "Iterator[Scene]":
        """Yield the scenes of a game that was written to a file."""


@runtime_checkable
class EvaluatesBaselines(Protocol):
    """Plays episodes with policies that have no network."""

    def evaluate_baseline(self, name: str, config: Any, world: "World", episodes: int, seed: int) -> "Evaluation":
        """Evaluate one of `baselines`. Called by every rank."""


@runtime_checkable
class Predicts(Protocol):
    """Predicts from data, and is measured by its predictions instead of by episodes."""

    def assess(
        self,
        config: Any,
        policy: str,
        learner: "Learner | None",
        data: str,
        part: str,
        world: "World",
        bad_files: str = "",
    ) -> Comparison:
        """Measure a trained learner, or one of `baselines`, on `data` or on a part of the run's own data."""


@runtime_checkable
class TakesOtherData(Protocol):
    """Trains on data, and its models can act on other data, such as newer."""

    def with_data(self, config: Any, data: Mapping[str, str], trained_on: Mapping[str, str] | None) -> Any:
        """A trained model's configuration for other data.

        `data`: by the field that names it, `data` or `chains`. `trained_on`: facts that the model kept about its own.
        """

    def data_notes(self, config: Any) -> list[str]:
        """What a user should know about the data that a trained model is used on, a line each."""


@dataclass(frozen=True)
class TradeRequest:
    """What `lockstep trade` asks a workload to do."""

    config: Any
    learner: "Learner"
    account: Path
    """The file that keeps the account between days; made if it does not exist."""
    symbol: str = ""
    """What to trade; empty = the account's, or the only one of the data."""
    trained_on: Mapping[str, str] | None = None
    """Facts about the data that were kept with the model; None = unknown."""


@runtime_checkable
class TradesOnPaper(Protocol):
    """Decides what to do on the newest day of data, with an account that is kept from day to day."""

    def trade(self, request: TradeRequest) -> Results:
        """Take up the account, decide on every new day, and write it."""


@runtime_checkable
class AnswersInputs(Protocol):
    """Predicts for inputs that a caller of the API has at hand."""

    def predictor(self, config: Any, learner: Any, world: "World") -> Callable[[Any], Any]:
        """A function from inputs to predictions on the CPU, in the forms that suit the workload."""


@dataclass(frozen=True)
class ForecastRequest:
    """What `lockstep predict` asks about something that is in progress."""

    simulate: int = 0
    """Games to play out to the end; 0 = the next step alone."""
    seed: int = 2025
    """Seed of these games."""
    given: Mapping[str, str] = field(default_factory=dict)
    """What the caller knows about the next step and the data does not say, by name; cricket: striker, bowler, ..."""


class Forecast(Protocol):
    """What is expected of something that is in progress."""

    over: bool
    """Whether it has ended, so that nothing is left to forecast."""

    def summary(self) -> dict[str, Any]:
        """As JSON."""

    def table(self) -> str:
        """As text."""


class Forecaster(Protocol):
    """Forecasts things that are in progress, given by a file, a folder, a zip, or - for the standard input."""

    def forecasts(self, source: str, request: ForecastRequest) -> Iterator[Forecast]:
        """One forecast for each of them."""

    def write_steps(self, source: str, path: Path) -> int:
        """Write what was predicted at each of their past steps to a file (csv, json, parquet); returns how many."""


@runtime_checkable
class ForecastsProgress(Protocol):
    """Forecasts how something that is in progress goes on."""

    def forecaster(self, config: Any, learner: Any, world: "World") -> Forecaster:
        """A forecaster that uses a trained model."""


@runtime_checkable
class UsedWithoutData(Protocol):
    """Learns from data that need not be there when its models are used."""

    def build_without_data(self, config: Any, world: "World", sample: Any) -> "Learner":
        """Build the learner of a trained model; `sample`: what `Learner.sample` was in training."""


@runtime_checkable
class Compares(Protocol):
    """Compares a trained policy with others in its own way."""

    def report(self, config: Any, learner: "Learner", world: "World", episodes: int, seed: int) -> Comparison:
        """Compare a trained policy with baselines. Called by every rank."""


@runtime_checkable
class Exports(Protocol):
    """Writes models in formats of other programs."""

    exports: ClassVar[tuple[str, ...]]

    def export(self, form: str, config: Any, weights: "Mapping[str, Tensor]", path: Path) -> None:
        """Write a trained model in one of `exports`."""


@runtime_checkable
class HasPeers(Protocol):
    """Can be trained with other programs, for comparison."""

    peers: ClassVar[tuple[str, ...]]
    like_peers: ClassVar[Mapping[str, Mapping[str, Any]]]
    """By peer: the settings that make our network the peer's."""

    def run_peer(self, name: str, config: Any, updates: int, device: str) -> int:
        """Train with one of `peers` for some updates of these sizes; returns the environment steps."""


@runtime_checkable
class Records(Protocol):
    """Writes episodes to files for offline training."""

    def record_episodes(self, config: Any, act: Acting, episodes: int, seed: int, folder: Path) -> tuple[int, int]:
        """Play episodes and write them to a directory; returns how many episodes and steps they are."""

    def convert_episodes(self, config: Any, source: Path, folder: Path) -> tuple[int, int]:
        """Convert another program's episodes to our format; returns how many episodes and steps they are."""


class Translation(Protocol):
    """Between environments of another library and our networks."""

    def rows(self, observation: Any) -> "tuple[Tensor, bool]":
        """Observations as the network gets them, (B, ...), and whether it was a single one."""

    def actions(self, actions: "Tensor", single: bool) -> Any:
        """Actions as the environment takes them: one, or an array of them."""


@runtime_checkable
class Translates(Protocol):
    """Has environments whose observations and actions are not those of its network."""

    def translation(self, config: Any) -> Translation | None:
        """How to translate them; None if nothing has to be."""


@runtime_checkable
class ChecksItself(Protocol):
    """Can tell more about what is wrong with its environments or data than what training relies on."""

    def check_itself(self, config: Any, steps: int) -> "Iterator[Finding]":
        """Yield a finding for each question; `steps`: how many to try."""


C = TypeVar("C")
VERBS: Mapping[type, str] = {
    Plays: "be played",
    PlaysOneTask: "show one task of several",
    LogsGames: "write or replay games",
    EvaluatesBaselines: "play without a network",
    Contests: "play one team against another",
    HoldsArenas: "let several players meet",
    KeepsBlotter: "keep a blotter",
    Predicts: "be measured on data",
    ForecastsProgress: "forecast something in progress",
    Exports: "be exported",
    HasPeers: "be trained by another program",
    Records: "record episodes",
    TradesOnPaper: "trade from day to day",
}
"""Completes "NAME: cannot ..." in the error message for a workload without the capability."""


class Named(Protocol):
    """Something with a name."""

    name: ClassVar[str]


def capability(workload: Named, kind: type[C], others: Callable[[], Iterator[Named]]) -> C:
    """The workload, typed as having a capability; raises UserError, naming those of `others` that have it, if not."""
    # A runtime check of a protocol looks at the names of its methods only; mypy checks their types.
    if isinstance(workload, kind):
        return workload  # type: ignore[return-value]
    able = ", ".join(other.name for other in others() if isinstance(other, kind))
    raise UserError(f"{workload.name}: cannot {VERBS[kind]}; workloads that can: {able or 'none'}")
