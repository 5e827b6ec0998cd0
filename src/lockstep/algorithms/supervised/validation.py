"""Validates a model: samples are divided among lanes, and the sums are added over all ranks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.dataset import Dataset, Streamed, Tally
from lockstep.algorithms.supervised.epoch_plan import Pass, Places, in_order, read_ahead
from lockstep.compute.graphs import Accelerator
from lockstep.compute.precision import Precision
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation


@dataclass
class Validation(Evaluation):
    """The result of a validation. Its return is the negative loss, as the loop keeps the highest return."""

    measured: dict[str, float] = field(default_factory=dict)
    """The tally's metrics."""
    total: Tensor | None = None
    """The tally's sums."""

    @classmethod
    def of(cls, total: Tensor, tally: Tally, seed: int) -> "Validation":
        """The validation with these sums."""
        measured = tally.numbers(total)
        return cls([-measured[tally.watched]], [int(measured["samples"])], seed, measured=measured, total=total)

    @property
    def loss(self) -> float:
        """The watched number: mean loss over the samples, for a classifier the log loss."""
        return -self.returns[0]

    def numbers(self) -> dict[str, float]:
        """The metrics to log."""
        return {name: value for name, value in self.measured.items() if name != "samples"}

    def summary(self) -> dict[str, Any]:
        """The content of evaluation.json."""
        return {"samples": self.lengths[0], "seed": self.seed, **self.numbers()}


@dataclass
class _Slot:
    """The sample numbers and weights of one group, in tensors that are filled in place for recorded graphs."""

    group: int
    index: Tensor
    weight: Tensor


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """While this holds, the model is in eval mode: layers such as dropout then do what they do in predictions.

    Layers that were in eval mode before stay so. Their flags are set directly: `train` would take as long as a small
    batch, and would set all layers alike.
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


class Validator:
    """Validates a model on a dataset, batch by batch; the computation of a batch can be recorded as a CUDA graph."""

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset,
        tally: Tally,
        world: World,
        safe_point: Callable[[], object] = lambda: None,
        *,
        batch_size: int,
        precision: Precision,
        accelerator: Accelerator,
    ) -> None:
        """`model`: inputs -> (prediction,), as SupervisedModel returns; used in eval mode.

        `safe_point`: called before each batch.
        """
        self._safe_point = safe_point
        self._model, self._dataset, self._tally, self._world = model, dataset, tally, world
        self._batch_size, self._precision = batch_size, precision
        self._plan = Pass(dataset.sizes, batch_size, world.lanes.total)
        self._slots = [self._empty_slots(self._plan, len(lanes)) for lanes in world.lanes.cohorts]
        # Added to in place, at the address that recorded graphs know.
        self._sums = [torch.zeros(tally.size, dtype=torch.float64, device=world.device) for _ in world.lanes.cohorts]
        # One recording per cohort, as each reads its own slots.
        self._measure = [accelerator.record(self._measure_once) for _ in world.lanes.cohorts]

    def validate(self, samples: int, seed: int) -> Validation:
        """Validate on at most this many samples. Called by every rank."""
        plan, slots, measure = self._plan, self._slots, self._measure
        if samples < plan.samples:
            # The same share of every group. Other shapes, so the recorded graphs cannot be used.
            sizes = tuple(-(-size * samples // plan.samples) for size in plan.sizes)
            plan = Pass(sizes, self._batch_size, plan.lanes)
            slots = [self._empty_slots(plan, len(lanes)) for lanes in self._world.lanes.cohorts]
            measure = [self._measure_once] * len(slots)
        streamed = isinstance(self._dataset, Streamed)
        places = [in_order(plan, lanes, self._world.device, within=streamed) for lanes in self._world.lanes.cohorts]
        if isinstance(self._dataset, Streamed):
            places = read_ahead(self._dataset, 0, places, 0)
        for sums in self._sums:
            sums.zero_()
        with evaluating(self._model):
            for number in range(plan.batches):
                self._safe_point()
                self._measure_batch(slots, places, number, measure)
        # Per cohort: in exact mode a cohort is one lane, and lane sums are added in lane order.
        return Validation.of(self._world.total(self._sums).cpu(), self._tally, seed)

    def _measure_batch(
        self, slots: list[list[_Slot]], places: list[list[Places]], number: int, measure: list[Callable[..., None]]
    ) -> None:
        if isinstance(self._dataset, Streamed):
            self._dataset.advance()
        for own, where, once, sums in zip(slots, places, measure, self._sums, strict=True):
            _fill(own, where, number)
            once(own, sums)

    @torch.no_grad()
    def _measure_once(self, slots: list[_Slot], sums: Tensor) -> None:
        for slot in slots:
            inputs = self._dataset.inputs(slot.group, slot.index)
            with self._precision.autocast():
                (prediction,) = self._model(inputs)
            label = self._dataset.labels(slot.group, slot.index)
            sums += self._tally.count(prediction, inputs, label, slot.weight)

    def _empty_slots(self, plan: Pass, lanes: int) -> list[_Slot]:
        device = self._world.device
        return [
            _Slot(
                group,
                torch.zeros(lanes * plan.width(group), dtype=torch.int64, device=device),
                torch.zeros(lanes * plan.width(group), device=device),
            )
            for group in plan.groups
        ]


def _fill(slots: list[_Slot], places: list[Places], number: int) -> None:
    for slot, place in zip(slots, places, strict=True):
        slot.index.copy_(place.index[number])
        slot.weight.copy_(place.weight[number])
