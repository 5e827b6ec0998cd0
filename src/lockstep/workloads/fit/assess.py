"""Measures a trained module on a dataset, and predicts with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lockstep.algorithms.supervised.learner import SupervisedLearner
from lockstep.algorithms.supervised.validation import Validator
from lockstep.compute.graphs import Accelerator
from lockstep.compute.precision import Precision
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.workloads.fit.data import open_data
from lockstep.workloads.fit.items import split
from lockstep.workloads.fit.outline import stand_in
from lockstep.workloads.fit.problem import Own, dataset_of, found, made, objective_of
from lockstep.workloads.fit.settings import FitConfig
from lockstep.workloads.fit.tree import Tree, leaves, mapped


@dataclass(frozen=True)
class Measured:
    """The results, in the forms that `lockstep eval` shows and writes."""

    results: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """The content of evaluation.json."""
        return self.results

    def table(self) -> str:
        """The results as text, a line for each number."""
        numbers = {name: value for name, value in self.results.items() if isinstance(value, float)}
        width = max(map(len, numbers))
        lines = [f"{name.replace('_', ' '):{width}} {value:12,.4f}" for name, value in numbers.items()]
        return "\n".join([f"{self.results['samples']:,} samples of {self.results['measured_on']}", "", *lines])

    def write(self, folder: Path) -> list[Path]:
        """There are no charts."""
        return []


def assess(own: Own, config: FitConfig, learner: SupervisedLearner, data: str, part: str, world: World) -> Measured:
    """Measure a learner on a dataset by name, or on a part of the run's own data. Called by every rank."""
    if part not in ("validation", "train"):
        raise UserError(f"--part {part}: {own.name} has none; allowed: validation, train, or --data module:name")
    source = made(found(data), data) if data else dataset_of(own, config, part)
    settings = config.workload
    dataset = open_data(
        source,
        data or f"{part} data",
        seed=config.run.seed,
        memory=settings.memory,
        workers=settings.data_workers,
        device=world.device,
    )
    validator = Validator(
        learner.model,
        dataset,
        objective_of(own, config)[1],
        world,
        batch_size=config.algorithm.eval_batch_size,
        precision=Precision(config.run.precision, world.device),
        accelerator=Accelerator(world.device, "none", exact=world.sync == "exact"),
    )
    validation = validator.validate(sum(dataset.sizes), config.run.seed)
    return Measured({"measured_on": data or part, **validation.summary()})


class Predictor:
    """The trained module as a function of inputs as items have them: a batch, or a single one without a first axis."""

    def __init__(self, learner: SupervisedLearner, world: World) -> None:
        self._inputs = split(stand_in(learner.sample))[0]
        self._learner, self._device = learner, world.device

    def __call__(self, inputs: Any) -> Tree:
        """The module's output, on the CPU; several inputs are given as a tuple, or a dict where items are dicts."""
        # A lone tensor is the only input.
        called = inputs if isinstance(inputs, dict | tuple) else (inputs,)
        tree = mapped(_tensors(called), lambda tensor: tensor.to(self._device))
        single = self._is_single(tree)
        if single:
            tree = mapped(tree, lambda tensor: tensor.unsqueeze(0))
        output = self._learner.predict(tree)
        return mapped(output, lambda tensor: (tensor[0] if single else tensor).float().cpu())

    def _is_single(self, tree: Tree) -> bool:
        """Whether it is one input instead of a batch; UserError if it is neither."""
        expected = {name: tuple(tensor.shape) for name, tensor in leaves(self._inputs)}
        found = {name: tuple(tensor.shape) for name, tensor in leaves(tree)}
        if found == expected:
            return True
        if found.keys() != expected.keys() or any(found[name][1:] != expected[name] for name in found):
            shapes = ", ".join(str(shape) for shape in found.values())
            known = ", ".join(str(shape) for shape in expected.values())
            raise UserError(f"inputs of shape {shapes}: the module was trained on {known}; give one such, or a batch")
        return False


def _tensors(value: Any) -> Tree:
    """Arrays and numbers as tensors, in float32 where they are float64, as in training."""
    if isinstance(value, dict):
        return {key: _tensors(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_tensors(part) for part in value)
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"inputs: a {type(value).__name__} is not a tensor, array or number") from error
    return tensor.float() if tensor.dtype == torch.float64 else tensor
