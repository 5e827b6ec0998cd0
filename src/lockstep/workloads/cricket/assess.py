"""How good predictions are on some matches: a trained model's, or a baseline's."""

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
from lockstep.workloads.cricket import metrics, report
from lockstep.workloads.cricket.baselines import BASELINES
from lockstep.workloads.cricket.build import dataset_of, frequencies
from lockstep.workloads.cricket.cache import Store
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.data import describe_matches, open_store
from lockstep.workloads.cricket.metrics import OutcomeTally
from lockstep.workloads.cricket.table import DeliveryTable


@dataclass(frozen=True)
class Assessment:
    """What came out, for files and for people: a report as `lockstep eval` shows them."""

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
    config: CricketConfig, data: str, part: str, world: World, bad_files: str = ""
) -> tuple[Store, DeliveryTable]:
    """What the run's training matches taught, and the deliveries that are meant: other data's, or a part of the run's.

    Called by every rank.
    """
    store = open_store(config, world)
    if data:
        return store, describe_matches(data, bad_files or config.bad_files, store, world)
    if part not in store.tables:
        raise UserError(f"--part {part}: the run's split has no such matches; there are {', '.join(store.tables)}")
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
    """Measure a trained learner, or the baseline of that name where there is none. Called by every rank."""
    store, table = matches_of(config, data, part, world, bad_files)
    tally = OutcomeTally(frequencies(store.tables["train"]).to(world.device))
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
        dataset_of(config, table.to(world.device)),
        tally,
        world,
        batch_size=config.eval_batch_size,
        precision=Precision(config.precision, world.device),
        accelerator=Accelerator(world.device, "none", exact=world.sync == "exact"),
    )
    total = validator.validate(table.samples, config.seed).total
    assert total is not None
    return total


def _count_baseline(log_probabilities: Tensor, table: DeliveryTable, tally: OutcomeTally) -> Tensor:
    """All ranks count everything: it takes no time."""
    phase, label = table.phase()[table.sample], table.label[table.sample]
    total = torch.zeros(tally.size, dtype=torch.float64)
    for rows in torch.arange(table.samples).split(8192):
        log, when, came = (column[rows].to(tally.device) for column in (log_probabilities, phase, label))
        total += tally.sums(log, when, came, torch.ones_like(log[:, 0])).cpu()
    return total
