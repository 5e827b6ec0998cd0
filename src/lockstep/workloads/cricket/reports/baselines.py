"""Predictions without a network, which a network has to beat: tables of counts, and the additive model."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.workloads.cricket.columns import OUTCOMES, PRIOR_COLUMNS
from lockstep.workloads.cricket.features.table import DeliveryTable

_MIXED_IN = 50.0
"""Pseudo-count: average samples added to every cell of a table, so that rare cells stay near the average."""


def class_prior(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """Overall frequency of each outcome."""
    return _counted(train, table, lambda one: torch.zeros_like(one.label))


def phase_and_innings(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """Frequency of each outcome by phase and innings."""
    return _counted(train, table, lambda one: one.phase() * 3 + _innings(one))


def over_wickets_and_innings(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """Frequency of each outcome by over, wickets down and innings."""
    return _counted(
        train, table, lambda one: (one.over * 11 + one.score[:, 1].long().clamp(max=10)) * 3 + _innings(one)
    )


def additive(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """The additive model of circumstances, teams, venue, batter and bowler (see features/skills.py)."""
    return table.state[table.sample][:, PRIOR_COLUMNS].float()


BASELINES: Mapping[str, Callable[[DeliveryTable, DeliveryTable], Tensor]] = {
    "prior": class_prior,
    "phase": phase_and_innings,
    "over": over_wickets_and_innings,
    "additive": additive,
}
"""Each maps the training table and another table to log-probabilities (M, 7) of the latter's samples."""


def log_loss(predicted: Tensor, table: DeliveryTable) -> float:
    """The mean log loss of log-probabilities of a table's samples."""
    return float(F.nll_loss(predicted, table.label[table.sample]))


def _innings(table: DeliveryTable) -> Tensor:
    """First, second, or a super over."""
    return table.innings.clamp(max=2)


def _counted(train: DeliveryTable, table: DeliveryTable, cell: Callable[[DeliveryTable], Tensor]) -> Tensor:
    classes = len(OUTCOMES)
    there, here = cell(train)[train.sample], cell(table)[table.sample]
    cells = int(torch.cat([there, here]).max()) + 1
    flat = there * classes + train.label[train.sample]
    counts = torch.bincount(flat, minlength=cells * classes).reshape(cells, classes).double()
    average = train.class_counts().double() / max(train.samples, 1)
    mixed = counts + _MIXED_IN * average
    return (mixed / mixed.sum(1, keepdim=True)).log().float()[here]
