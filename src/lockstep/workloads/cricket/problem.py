"""Next-ball prediction as a problem to learn: training and validation deliveries, vocabulary and feature scales."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.algorithms.supervised.problem import DataProblem
from lockstep.distributed.world import World
from lockstep.workloads.cricket.data.preparation import Splits, open_splits
from lockstep.workloads.cricket.data.samples import grouped
from lockstep.workloads.cricket.features.table import DeliveryTable, Entities
from lockstep.workloads.cricket.network.encoders import Scales, Vocabulary
from lockstep.workloads.cricket.reports.metrics import OutcomeTally
from lockstep.workloads.cricket.settings import CricketSettings

_ROWS = 32_768
"""Rows of a table converted to float64 at a time, which bounds the memory."""


@dataclass(kw_only=True)
class CricketProblem(DataProblem):
    """The deliveries, and statistics of the training matches."""

    entities: Entities
    """Venues, teams and players that a network can know by name."""
    prior: Tensor
    """(7,) frequency of each outcome, which an untrained network predicts."""
    scales: Scales

    @property
    def vocabulary(self) -> Vocabulary:
        """Number of ids of each kind."""
        return Vocabulary(len(self.entities.venues), len(self.entities.teams), len(self.entities.players))


def cricket_problem(settings: CricketSettings, world: World, *, balls: bool) -> CricketProblem:
    """The settings' matches, on this rank's device. Called by every rank.

    `balls`: whether the network reads the earlier balls of an innings.
    """
    return problem_of(open_splits(settings, world), settings, world, balls=balls)


def problem_of(splits: Splits, settings: CricketSettings, world: World, *, balls: bool) -> CricketProblem:
    """Like `cricket_problem`, from prepared tables."""
    prior = splits.train.frequencies()
    train, validation = (
        grouped(table.to(world.device), settings.history_groups, balls) for table in (splits.train, splits.validation)
    )
    return CricketProblem(
        name="cricket",
        train=train,
        validation=validation,
        tally=OutcomeTally(prior.to(world.device)),
        data_digest=splits.source,
        entities=splits.entities,
        prior=prior,
        scales=scales_of(splits.train),
    )


def scales_of(table: DeliveryTable) -> Scales:
    """Mean and standard deviation of the features over a table's samples."""
    return Scales(*_moments(table.state, table.sample), *_moments(table.career, table.sample))


def _moments(column: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of some rows, in parts: all rows in float64 would take most of a rank's memory."""
    parts = rows.split(_ROWS)
    mean = torch.stack([column[part].double().sum(0) for part in parts]).sum(0) / len(rows)
    squares = torch.stack([(column[part].double() - mean).square().sum(0) for part in parts]).sum(0)
    variance = squares / (len(rows) - 1)
    return mean.float(), variance.sqrt().float()
