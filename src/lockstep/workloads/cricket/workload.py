"""Next-ball prediction with a graph network: its presets and capabilities."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.config.config import NetworkSettings, Preset, WorkloadSettings, preset
from lockstep.errors import UserError
from lockstep.workloads.capabilities import PlayRequest
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.network.settings import GraphSettings
from lockstep.workloads.cricket.settings import CricketSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.algorithms.supervised.learner import SupervisedLearner
    from lockstep.distributed.world import World
    from lockstep.reporting.film import Scene
    from lockstep.run.learner import Learner
    from lockstep.storage.program_file import Program
    from lockstep.workloads.cricket.live.forecaster import MatchForecaster
    from lockstep.workloads.cricket.problem import CricketProblem
    from lockstep.workloads.cricket.reports.assess import Assessment

_BASE = preset(
    "Train on a GPU with all matches of --data: four networks side by side, on the graph without earlier balls.",
    drop_relations="ball",
    members=4,
    batch_size=2048,
    eval_batch_size=8192,
    epochs=5,
    patience=2,
    learning_rate=1e-3,
    lr_warmup=100_000,
    weight_decay=0.1,
    ema_decay=0.999,
    dropout=0.3,
    id_dropout=0.5,
    log_every=20,
    check_every=200,
    checkpoint_every=2_000_000,
)


class Cricket(Workload):
    """The next ball of a T20 match."""

    name = "cricket"
    summary = "Cricket: the next ball, by a graph network"
    settings: ClassVar[type[WorkloadSettings]] = CricketSettings
    algorithms = ("supervised",)
    networks: ClassVar[Mapping[str, Mapping[str, type[NetworkSettings]]]] = {"supervised": {"graph": GraphSettings}}
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few seconds of training in a small simulated league: for tests and first steps.",
            matches=10,
            hidden_dim=16,
            num_layers=2,
            num_heads=2,
            player_dim=8,
            history_groups=2,
            batch_size=64,
            eval_batch_size=256,
            epochs=2,
            learning_rate=3e-3,
            lr_schedule="constant",
            checkpoint_every=1000,
            drop_relations="same_over",
        ),
        "small": preset(
            "Train on a laptop: a smaller network that leaves the earlier balls out, in minutes for the simulated "
            "league.",
            hidden_dim=32,
            num_layers=2,
            player_dim=16,
            batch_size=256,
            eval_batch_size=1024,
            epochs=6,
            patience=3,
            learning_rate=2e-3,
            lr_warmup=20_000,
            ema_decay=0.99,
            id_dropout=0.3,
            log_every=10,
            checkpoint_every=100_000,
            # Earlier balls cost thirty times as much as all other nodes together.
            drop_relations="ball",
        ),
        "base": _BASE,
        "whole": _BASE.but(
            "Train on a GPU with the whole graph: every earlier ball of the innings and its relations, too.",
            drop_relations="",
            members=1,
            epochs=4,
            weight_decay=0.05,
            dropout=0.2,
            id_dropout=0.3,
        ),
        "guide": preset(
            "Train as the guide does: its loss, rates and sizes, with a working warm-up.",
            batch_size=64,
            loss="focal",
            class_weights=True,
            learning_rate=1e-3,
            weight_decay=0.01,
            dropout=0.1,
            id_dropout=0.0,
            lr_warmup=100_000,
            epochs=100,
            patience=10,
            log_every=100,
            checkpoint_every=2_000_000,
        ),
    }
    baselines = ("prior", "phase", "over", "additive")
    """Predictions without a network: by frequency, by phase, by over and wickets, and the additive model."""
    preloads = (
        "lockstep.algorithms.supervised.learner",
        "lockstep.workloads.cricket.problem",
        "lockstep.workloads.cricket.network.model",
    )

    def problem(self, config: CricketConfig, world: "World") -> "CricketProblem":
        """Deliveries on this rank's device, prepared by one rank if not cached. Called by every rank."""
        from lockstep.workloads.cricket.problem import cricket_problem

        return cricket_problem(config.workload, world, balls=config.network.reads_balls)

    def fit(self, config: CricketConfig, explicit: Collection[str]) -> tuple[CricketConfig, list[str]]:
        """Check that the matches and their split exist, before any rank starts."""
        settings = config.workload
        if settings.data:
            from lockstep.workloads.cricket.matches.split import check_source

            check_source(settings.data, settings.split, settings.split_seed)
        return config, []

    def adapted_weights(
        self,
        config: CricketConfig,
        world: "World",
        source: Path,
        weights: "Mapping[str, Tensor]",
        needed: "Mapping[str, Tensor]",
    ) -> "Mapping[str, Tensor]":
        """A model of other matches: players, teams and venues keep what was learned about them, by name."""
        from lockstep.storage.weights import stored_config
        from lockstep.workloads.cricket.data.carry_over import carried_over, without_tables
        from lockstep.workloads.cricket.data.preparation import open_store

        # Whose row is whose is not known for a file that does not say how it was made, or without the old matches.
        if not (text := world.led(lambda: stored_config(source))):
            return without_tables(weights)
        try:
            settings = self.read_config(text, str(source), stored_in=source).workload
            assert isinstance(settings, CricketSettings)
            old = open_store(settings, world)
        except UserError:
            return without_tables(weights)
        return carried_over(weights, needed, old.index, open_store(config.workload, world).index)

    def check_kept(self, config: CricketConfig, model: Path) -> None:
        """Check that a stored model's training data still exists: names and careers are not part of its weights."""
        kept = {
            config.workload.data: "its training matches are needed for names and careers",
            config.workload.split: "its split file is needed to know which matches it was trained on",
        }
        for place, why in kept.items():
            if place and not Path(place).exists():
                raise UserError(f"{model}: {why}, but {place} does not exist; restore it there")

    def assess(
        self,
        config: CricketConfig,
        policy: str,
        learner: "SupervisedLearner | None",
        data: str,
        part: str,
        world: "World",
        bad_files: str = "",
    ) -> "Assessment":
        """Evaluate a trained learner, or one of `baselines`, on other data or on a part of the run's.

        `bad_files`: what to do with files in `data` that are not matches; empty = as configured.
        Called by every rank.
        """
        from lockstep.workloads.cricket.reports.assess import assess

        return assess(config, policy, learner, data, part, world, bad_files)

    def predictor(
        self, config: CricketConfig, learner: "SupervisedLearner", world: "World"
    ) -> "Callable[[Any], Tensor]":
        """A function from matches (a file, folder or zip), or from samples, to the probabilities of each outcome."""
        from lockstep.workloads.cricket.reports.assess import Predictor

        return Predictor(config, learner, world)

    def program(self, config: CricketConfig, learner: "Learner") -> "Program":
        """The network as a function of one ball's features, for `lockstep export --format onnx | torch`."""
        from lockstep.workloads.cricket.network.program import outcome_program

        return outcome_program(learner, config.network.reads_balls)

    def forecaster(self, config: CricketConfig, learner: "SupervisedLearner", world: "World") -> "MatchForecaster":
        """Forecasts matches that are in progress."""
        from lockstep.workloads.cricket.live.forecaster import MatchForecaster

        return MatchForecaster(config, learner, world)

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Play match after match, yielding every ball with its prediction."""
        from lockstep.workloads.cricket.reports.watch import scenes

        return scenes(request.config.workload, request.act, request.seed, request.data, request.bad_files)
