"""Deliveries as flat tensors: a sample is a row number, its history the rows before it in the same innings.

N rows, one per delivery, in match order. Nothing is stored per sample, so a batch is made on the device by gathering:
the history of row i is rows first[i] .. i-1, and everything in `state`, `ids`, `roles` and `career` at row i was known
before delivery i.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from lockstep.workloads.cricket.columns import PHASES

POWERPLAY_OVERS, DEATH_OVER = 6, 16


@dataclass(frozen=True)
class Entities:
    """Venues, teams and players of the training matches, by id; id 0 is the unknown one of each."""

    venues: tuple[str, ...]
    teams: tuple[str, ...]
    players: tuple[str, ...]
    player_balls: tuple[int, ...]
    """Deliveries that each player faced or bowled in training matches: how well a model can know the player."""


@dataclass(frozen=True)
class MatchInfo:
    """Description of a match, for display."""

    file: str
    date: str
    teams: tuple[str, str]
    venue: str


@dataclass(frozen=True)
class DeliveryTable:
    """The deliveries of some matches; all tensors on one device."""

    label: Tensor
    """(N,) int64: the outcome, an index into OUTCOMES."""
    first: Tensor
    """(N,) int64: the row of the innings' first delivery."""
    sample: Tensor
    """(M,) int64: the rows that are samples, all but the first of each innings."""
    match: Tensor
    """(N,) int64: index into `matches`."""
    innings: Tensor
    """(N,) int64: 0 for the match's first innings, 1 for the second, 2 and more for super overs."""
    over: Tensor
    """(N,) int64: the over the delivery belongs to, from 0."""
    ball_in_over: Tensor
    """(N,) int64: deliveries of the same over before this one, wides and no-balls included."""
    runs: Tensor
    """(N, 2) int8: the batter's runs and all runs of the delivery; part of the outcome, never an input of its row."""
    score: Tensor
    """(N, 4) int16: runs, wickets and legal balls before the delivery, and the target (0 = none or not known)."""
    ball: Tensor
    """(N, 18) float16: BALL_FEATURES, for use as history."""
    ball_ids: Tensor
    """(N, 3) int64: ids of bowler, batter and non-striker; 0 = not in training matches."""
    people: Tensor
    """(N, 3) int64: the same three as indices into `names`: tells apart players that are all unknown to training."""
    ids: Tensor
    """(N, 6) int64: ids of ENTITIES; 0 = not in training matches. A batter's team is batting_team, and so on."""
    roles: Tensor
    """(N, 3) int64: roles of striker, non-striker and bowler, indices into ROLES."""
    state: Tensor
    """(N, STATE_WIDTH) float32: STATE_FEATURES, each node type at its STATE_COLUMNS."""
    career: Tensor
    """(N, CAREER_WIDTH) float16: CAREER_FEATURES at CAREER_COLUMNS; for training rows out of their match's fold."""
    names: tuple[str, ...]
    """Every player of these matches."""
    matches: tuple[MatchInfo, ...]
    longest: int
    """Deliveries of the longest innings: no history has more rows than this less one."""

    def __len__(self) -> int:
        """The number of deliveries."""
        return self.label.shape[0]

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.sample.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.label.device

    def to(self, device: torch.device | str) -> "DeliveryTable":
        """The same table on another device."""
        moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.tensors().items()}
        return replace(self, **moved)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def phase(self) -> Tensor:
        """(N,) int64: the phase of the over, an index into PHASES."""
        return (self.over >= POWERPLAY_OVERS).long() + (self.over >= DEATH_OVER).long()

    def phase_masks(self) -> dict[str, Tensor]:
        """(N,) bool for each phase by name."""
        phase = self.phase()
        return {name: phase == number for number, name in enumerate(PHASES)}

    def class_counts(self) -> Tensor:
        """(7,) int64: samples of each outcome."""
        return torch.bincount(self.label[self.sample], minlength=7)

    def frequencies(self) -> Tensor:
        """(7,) float32: relative frequency of each outcome among the samples."""
        counts = self.class_counts()
        return counts.double().div(counts.sum()).float()
