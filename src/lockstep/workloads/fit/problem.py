"""A user's data, module, loss and metrics as a problem to learn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import nn
from torch.utils.data import Dataset

from lockstep.algorithms.supervised.dataset import Tally
from lockstep.algorithms.supervised.losses import PerSample
from lockstep.algorithms.supervised.objectives import (
    CrossEntropy,
    SampleObjective,
    absolute_error,
    accuracy,
    gamma_of,
    squared_error,
)
from lockstep.algorithms.supervised.problem import DataProblem
from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.algorithms.supervised.tallies import MetricTally, RegressionTally
from lockstep.config import outside
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import LockstepError, RunFailed, UserError, described
from lockstep.launch import given
from lockstep.workloads.fit.data import open_data
from lockstep.workloads.fit.module import make_module
from lockstep.workloads.fit.outline import outline, stand_in
from lockstep.workloads.fit.settings import FitConfig
from lockstep.workloads.fit.tree import mapped

Evaluate = Callable[[Callable[[Any], Any]], dict[str, float]]


class Own(Protocol):
    """What a workload brings itself, where the settings name nothing else."""

    name: ClassVar[str]

    @property
    def metrics(self) -> Mapping[str, PerSample]:
        """Metrics by label."""

    @property
    def evaluation(self) -> Callable[[Callable[..., Any], Any], Mapping[str, float]] | None:
        """A function (predict, val_set) -> {label: number}."""

    def model(self) -> Any:
        """The module."""

    def train_set(self) -> Any:
        """The dataset to learn from."""

    def val_set(self) -> Any:
        """The dataset to validate on."""


@dataclass(kw_only=True)
class FitProblem(DataProblem):
    """The data, and how the module is made."""

    make_network: Callable[[int], nn.Module]


def fit_problem(own: Own, config: FitConfig, world: World, sample: Any = None) -> FitProblem:
    """The workload's problem, with the data on this rank's device or streamed to it. Called by every rank.

    `sample`: the outline of a sample, for a model that is only used: one of zeros then stands for all of the data.
    """
    settings = config.workload
    train, validation = (
        open_data(
            dataset_of(own, config, part) if sample is None else [stand_in(sample)],
            name,
            seed=config.run.seed,
            memory=settings.memory,
            workers=settings.data_workers,
            device=world.device,
        )
        for part, name in (("train", "training data"), ("validation", "validation data"))
    )
    objective, tally = objective_of(own, config)
    return FitProblem(
        name=own.name,
        train=train,
        validation=validation,
        tally=tally,
        objective=objective,
        evaluation=_evaluation(own, config, world),
        data_digest=train.digest if sample is None else "",
        sample=outline(train.first),
        make_network=lambda seed: make_module(
            found(config.network.model) if config.network.model else own.model,
            config.network.model or own.name,
            train.first,
            seed,
        ),
    )


def dataset_of(own: Own, config: FitConfig, part: str) -> Any:
    """The dataset to learn from or to validate on; a function that returns one is called."""
    source = config.workload.train_data if part == "train" else config.workload.val_data
    if not source:
        return own.train_set() if part == "train" else own.val_set()
    return made(found(source), source)


def made(thing: Any, source: str) -> Any:
    """A dataset, or what a function or class returns."""
    if isinstance(thing, Dataset) or not callable(thing):
        return thing
    try:
        return thing()
    except LockstepError:
        raise
    except Exception as error:
        raise UserError(f"{source}: the data cannot be opened ({described(error)})") from error


def found(source: str) -> Any:
    """What a name means: an object given in Python, or something in a module or file."""
    if given.is_given(source):
        return given.fetch(source)
    if not outside.is_outside(source):
        raise UserError(f"{shown(source)}: not the name of anything; allowed: module:name or file.py:name")
    return outside.member_from_outside(source)


def objective_of(own: Own, config: FitConfig) -> tuple[SampleObjective, Tally]:
    """What is minimised, and what a validation adds up."""
    settings = config.algorithm
    metrics: dict[str, PerSample] = {**own.metrics}
    metrics |= {label: found(source) for label, source in config.workload.named_metrics().items()}
    if settings.loss in _BUILT_IN or settings.classifies:
        loss, usual = _built_in(settings)
        metrics = {**usual, **metrics}
    else:
        loss = found(settings.loss)
    for what, function in {"loss": loss, **metrics}.items():
        if not callable(function):
            raise UserError(f"{what}: is a {type(function).__name__}; allowed: a function of (prediction, target)")
    if "loss" in metrics or "samples" in metrics:
        raise UserError("metrics: `loss` and `samples` are there already; choose another name")
    tally: Tally
    if settings.loss in _BUILT_IN:
        tally = RegressionTally(loss, metrics)
    else:
        tally = MetricTally(loss, metrics, "log_loss" if settings.classifies else "loss")
    return SampleObjective(loss, metrics, settings.classifies), tally


_BUILT_IN: Mapping[str, tuple[PerSample, Mapping[str, PerSample]]] = {
    "mse": (squared_error, {"mae": absolute_error}),
    "l1": (absolute_error, {"mae": absolute_error}),
}


def _built_in(settings: SupervisedSettings) -> tuple[PerSample, Mapping[str, PerSample]]:
    """A loss of ours, and the metrics that go with it."""
    if settings.loss in _BUILT_IN:
        return _BUILT_IN[settings.loss]
    loss = CrossEntropy(gamma_of(settings), settings.label_smoothing)
    return loss, {"log_loss": CrossEntropy(), "accuracy": accuracy}


def _evaluation(own: Own, config: FitConfig, world: World) -> Evaluate | None:
    """The user's own evaluation, if there is one: a function of one that predicts."""
    function = found(config.workload.evaluation) if config.workload.evaluation else own.evaluation
    if function is None:
        return None

    def evaluate(predict: Callable[[Any], Any]) -> dict[str, float]:
        def on_device(*inputs: Any, **named: Any) -> Any:
            return predict(mapped(named or inputs, lambda tensor: tensor.to(world.device)))

        try:
            numbers = function(on_device, dataset_of(own, config, "validation"))
            return {str(label): float(value) for label, value in numbers.items()}
        except LockstepError:
            raise
        except Exception as error:
            raise RunFailed(f"evaluation: raises {described(error)}; correct it, and run again") from error

    return evaluate
