"""Supervised learning on anybody's data: as settings, from Python with `lockstep.fit`, or as a subclass in a file."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms import registry as algorithms
from lockstep.config.config import NetworkSettings, Preset, WorkloadSettings, preset
from lockstep.workloads.fit.settings import FitConfig, FitSettings, ModuleSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from lockstep.algorithms.supervised.learner import SupervisedLearner
    from lockstep.distributed.world import World
    from lockstep.run.learner import Learner
    from lockstep.storage.program_file import Program
    from lockstep.workloads.fit.assess import Measured
    from lockstep.workloads.fit.problem import FitProblem


class Fit(Workload):
    """Any torch Dataset and any nn.Module; by default two spirals, as an example.

    A subclass defines `model`, `train_set` and `val_set`, and may set `defaults`, `metrics` and `evaluation`.
    """

    name = "fit"
    summary = "Your dataset and your nn.Module, supervised"
    settings: ClassVar[type[WorkloadSettings]] = FitSettings
    algorithms = ("supervised",)
    networks: ClassVar[Mapping[str, Mapping[str, type[NetworkSettings]]]] = {"supervised": {"module": ModuleSettings}}
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few epochs: for tests and first steps.",
            epochs=4,
            batch_size=64,
            lr_schedule="constant",
            patience=0,
        ),
        "base": preset("Train with settings that suit most data."),
    }
    preloads = ("lockstep.algorithms.supervised.learner", "lockstep.workloads.fit.problem")
    metrics: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {}
    """Metrics by label: (prediction, target) -> (B,), one number for each sample."""
    evaluation: Callable[[Callable[..., Any], Any], Mapping[str, float]] | None = None
    """A function (predict, val_set) -> {label: number} whose numbers are added to every validation."""

    def model(self) -> Any:
        """The nn.Module to train. Called by every rank, with torch seeded alike."""
        from lockstep.workloads.fit.sample import network

        return network()

    def train_set(self) -> Any:
        """The dataset to learn from. Called by every rank."""
        from lockstep.workloads.fit.sample import Spirals

        return Spirals(1000, 1)

    def val_set(self) -> Any:
        """The dataset to validate on. Called by every rank."""
        from lockstep.workloads.fit.sample import Spirals

        return Spirals(200, 2)

    def problem(self, config: FitConfig, world: "World") -> "FitProblem":
        """The data on this rank's device, or streamed to it. Called by every rank."""
        from lockstep.workloads.fit.problem import fit_problem

        return fit_problem(self, config, world)

    def assess(
        self,
        config: FitConfig,
        policy: str,
        learner: "SupervisedLearner | None",
        data: str,
        part: str,
        world: "World",
        bad_files: str = "",
    ) -> "Measured":
        """Measure a trained learner on `data`, a dataset by name, or on a part of its own. Called by every rank."""
        from lockstep.workloads.fit.assess import assess

        assert learner is not None, "fit has no baselines"
        return assess(self, config, learner, data, part, world)

    def predictor(self, config: FitConfig, learner: "SupervisedLearner", world: "World") -> Callable[[Any], Any]:
        """A function from inputs, a batch or a single one, to the module's output."""
        from lockstep.workloads.fit.assess import Predictor

        return Predictor(learner, world)

    def build_without_data(self, config: FitConfig, world: "World", sample: Any) -> "Learner":
        """The learner of a trained model, with one sample of zeros instead of the data."""
        from lockstep.workloads.fit.problem import fit_problem

        return algorithms.load(config.run.algorithm).build(config, world, fit_problem(self, config, world, sample))

    def program(self, config: FitConfig, learner: "Learner") -> "Program":
        """The module with what makes predictions of its output, as `predict` gives them."""
        from lockstep.workloads.fit.program import module_program

        return module_program(learner)
