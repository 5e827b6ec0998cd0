"""Evaluates the predictions of a trained model or a baseline."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.supervised.learner import SupervisedLearner
from lockstep.algorithms.supervised.validation import Validator
from lockstep.compute.graphs import Accelerator
from lockstep.compute.precision import Precision
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.data.cache import Store
from lockstep.workloads.cricket.data.preparation import describe_matches, open_store
from lockstep.workloads.cricket.data.samples import Samples, gather, grouped
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.reports import metrics, report
from lockstep.workloads.cricket.reports.baselines import BASELINES
from lockstep.workloads.cricket.reports.metrics import OutcomeTally
from lockstep.workloads.cricket.settings import CricketSettings


@dataclass(frozen=True)
class Assessment:
    """Results of an evaluation, in the forms that `lockstep eval` shows and writes."""

    results: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """The content of evaluation.json."""
        return self.results

    def table(self) -> str:
        """The report as text."""
        return report.text(self.results)

    def write(self, folder: Path) -> list[Path]:
        """Draw confusion and calibration into a folder; returns the charts' paths."""
        return report.draw(self.results, folder)


def matches_of(
    settings: CricketSettings, data: str, part: str, world: World, bad_files: str = ""
) -> tuple[Store, DeliveryTable]:
    """The run's store, and the deliveries to evaluate: those of `data`, or else of a part of the run's split.

    Called by every rank.
    """
    store = open_store(settings, world)
    if data:
        return store, describe_matches(data, bad_files or settings.bad_files, store, world)
    if part not in store.tables:
        raise UserError(f"--part {part}: the run's split has no such part; allowed: {', '.join(store.tables)}")
    return store, store.tables[part]


def assess(
    config: CricketConfig,
    policy: str,
    learner: SupervisedLearner | None,
    data: str,
    part: str,
    world: World,
    bad_files: str = "",
) -> Assessment:
    """Evaluate a trained learner, or if it is None the baseline named `policy`. Called by every rank."""
    store, table = matches_of(config.workload, data, part, world, bad_files)
    tally = OutcomeTally(store.tables["train"].frequencies().to(world.device))
    if learner is None:
        total = _count_baseline(BASELINES[policy](store.tables["train"], table), table, tally)
    else:
        total = _count_trained(config, learner, table, tally, world)
    matches = len(table.matches)
    return Assessment({"matches": matches, "measured_on": data or part, **metrics.report(total)})


def _count_trained(
    config: CricketConfig, learner: SupervisedLearner, table: DeliveryTable, tally: OutcomeTally, world: World
) -> Tensor:
    validator = Validator(
        learner.model,
        grouped(table.to(world.device), config.workload.history_groups, config.network.reads_balls),
        tally,
        world,
        batch_size=config.algorithm.eval_batch_size,
        precision=Precision(config.run.precision, world.device),
        accelerator=Accelerator(world.device, "none", exact=world.sync == "exact"),
    )
    total = validator.validate(table.samples, config.run.seed).total
    assert total is not None
    return total


def _count_baseline(log_probabilities: Tensor, table: DeliveryTable, tally: OutcomeTally) -> Tensor:
    """Every rank counts all samples: baselines are so fast that sharing the work would not pay."""
    phase, label = table.phase()[table.sample], table.label[table.sample]
    total = torch.zeros(tally.size, dtype=torch.float64)
    for rows in torch.arange(table.samples).split(8192):
        log, when, actual = (column[rows].to(tally.device) for column in (log_probabilities, phase, label))
        total += tally.sums(log, when, actual, torch.ones_like(log[:, 0])).cpu()
    return total


class Predictor:
    """A trained model as a function from matches, or samples, to the probabilities of each outcome."""

    def __init__(self, config: CricketConfig, learner: SupervisedLearner, world: World) -> None:
        self._config, self._learner, self._world = config, learner, world

    def __call__(self, inputs: Any) -> Tensor:
        """(B, 7) for `Samples`, or for every ball but the first of each innings, in order.

        Matches are given by the path of a file, a folder or a zip; those that the model was trained on are left out.
        """
        if isinstance(inputs, Samples):
            return self.probabilities(inputs)
        if not isinstance(inputs, str | Path):
            kind = type(inputs).__name__
            raise UserError(f"predict: a {kind} is no match; allowed: the path of a match file, folder or zip")
        settings, world = self._config.workload, self._world
        store = open_store(settings, world)
        table = describe_matches(str(inputs), settings.bad_files, store, world).to(world.device)
        return self.of_table(table)

    def of_table(self, table: DeliveryTable) -> Tensor:
        """(M, 7) for the samples of a table on this device."""
        phase, longest = table.phase(), max(table.longest - 1, 1) if self._config.network.reads_balls else 0
        parts = [
            self.probabilities(gather(table, phase, rows, longest))
            for rows in table.sample.split(self._config.algorithm.eval_batch_size)
        ]
        return torch.cat(parts)

    def probabilities(self, samples: Samples) -> Tensor:
        """(B, 7), on the CPU."""
        return self.on_device(samples).cpu()

    def on_device(self, samples: Samples) -> Tensor:
        """(B, 7), where the network computes."""
        return self._learner.predict(samples.to(self._world.device)).exp().float()
