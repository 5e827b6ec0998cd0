"""Predictions without a network, for comparison: tables of frequencies, and the additive model."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.workloads.cricket.columns import OUTCOMES, PRIOR_COLUMNS
from lockstep.workloads.cricket.features.table import DeliveryTable

_PSEUDO_COUNT = 50.0
"""Average samples added to every cell of a table, so that rare cells stay near the average."""


def class_prior(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """Overall frequency of each outcome."""
    return _counted(train, table, lambda rows: torch.zeros_like(rows.label))


def phase_and_innings(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """Frequency of each outcome by phase and innings."""
    return _counted(train, table, lambda rows: rows.phase() * 3 + _innings(rows))


def over_wickets_and_innings(train: DeliveryTable, table: DeliveryTable) -> Tensor:
    """Frequency of each outcome by over, wickets down and innings."""
    return _counted(
        train, table, lambda rows: (rows.over * 11 + rows.score[:, 1].long().clamp(max=10)) * 3 + _innings(rows)
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
    """Log-frequencies in the training table's cell of each sample of the other table."""
    classes = len(OUTCOMES)
    there, here = cell(train)[train.sample], cell(table)[table.sample]
    cells = int(torch.cat([there, here]).max()) + 1
    flat = there * classes + train.label[train.sample]
    counts = torch.bincount(flat, minlength=cells * classes).reshape(cells, classes).double()
    average = train.class_counts().double() / max(train.samples, 1)
    smoothed = counts + _PSEUDO_COUNT * average
    return (smoothed / smoothed.sum(1, keepdim=True)).log().float()[here]
