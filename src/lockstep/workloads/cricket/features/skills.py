"""An additive model of the outcome: context, teams, venue, batter and bowler each shift the log-odds.

A skill is what a player adds when everything else is accounted for, so that batting in the last overs does not look
like hitting power. Each kind of effect is shrunk towards zero by a variance that is estimated with the effects (as in a
mixed model): a player with ten balls stays near the average, one with a thousand does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CLASSES = 7
_SWEEPS = 7
"""Passes of coordinate descent over all effects."""
_CURVED_SWEEPS = 2
"""Sweeps in which the curvature is recomputed; it changes little afterwards."""
_LEAST, _MOST = 0.5, 3000.0
"""Bounds of the estimated shrinkage."""


@dataclass(frozen=True)
class Effect:
    """One kind of shift: which member each delivery has, and how many members there are."""

    name: str
    member: Tensor
    """(n,) int64."""
    size: int
    stiffness: tuple[float, ...] = (80.0, 100.0, 60.0, 40.0, 50.0, 20.0, 60.0)
    """Initial shrinkage by outcome, as a precision (1 / variance); a good guess saves sweeps."""


def fit_effects(label: Tensor, effects: Sequence[Effect], sweeps: int = _SWEEPS) -> dict[str, Tensor]:
    """Fit the shifts of every effect's members, (size, 7) each, and `prior`, (7,): the log-odds they are added to."""
    counts = torch.bincount(label, minlength=CLASSES).double()
    prior = ((counts + 1) / (counts.sum() + CLASSES)).float()
    # Probabilities are updated by multiplying with each step's odds, which saves recomputing the exponentials.
    probability = prior.expand(len(label), CLASSES).contiguous()
    fits = [_Fit(effect, label) for effect in effects]
    for sweep in range(sweeps):
        for fit in fits:
            fit.improve(probability, curved=sweep < _CURVED_SWEEPS)
    return {"prior": prior.log()} | {fit.effect.name: fit.shift for fit in fits}


class _Fit:
    """One effect during the fit: Newton steps with a diagonal Hessian."""

    def __init__(self, effect: Effect, label: Tensor) -> None:
        self.effect = effect
        flat = torch.bincount(effect.member * CLASSES + label, minlength=effect.size * CLASSES)
        self.observed = flat.reshape(effect.size, CLASSES).double()
        self.seen = self.observed.sum(1) > 0
        self.shift = torch.zeros(effect.size, CLASSES)
        self.curvature = torch.zeros(effect.size, CLASSES, dtype=torch.float64)
        self.stiffness = torch.tensor(effect.stiffness, dtype=torch.float64)

    def improve(self, probability: Tensor, curved: bool) -> None:
        """Update this effect's shifts and, in place, the deliveries' probabilities (n, 7)."""
        member = self.effect.member
        expected = self._total(probability)
        if curved:
            self.curvature = expected - self._total(probability.square())
        slope = self.observed - expected - self.stiffness * self.shift
        # Sums over all deliveries are in float64; the shifts themselves are float32.
        step = (slope / (self.curvature + self.stiffness)).float()
        self.shift += step
        probability *= step.exp()[member]
        probability /= probability.sum(1, keepdim=True)
        self._estimate_stiffness()

    def _total(self, values: Tensor) -> Tensor:
        total = torch.zeros(self.effect.size, CLASSES)
        return total.index_add_(0, self.effect.member, values).double()

    def _estimate_stiffness(self) -> None:
        """Re-estimate the shrinkage from the shifts and their uncertainty (expectation-maximisation)."""
        # Members without a delivery say nothing about how different members are.
        if not self.seen.any():
            return
        members, curvature = self.shift[self.seen].double(), self.curvature[self.seen]
        for _ in range(3):
            spread = (members.square() + 1 / (curvature + self.stiffness)).mean(0)
            self.stiffness = (1 / spread).clamp(_LEAST, _MOST)
