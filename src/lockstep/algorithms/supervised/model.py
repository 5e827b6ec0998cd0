"""The weights of a run: those that are trained and, where asked for, their average over the updates."""

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.members import by_member, together
from lockstep.rl.target_networks import target_of


class SupervisedModel(nn.Module):
    """A network and the slow average of its weights; the average, where there is one, is what answers."""

    def __init__(self, network: nn.Module, averages: bool) -> None:
        super().__init__()
        self.network = network
        self.average = target_of(network) if averages else None

    @property
    def serving(self) -> nn.Module:
        """The weights that are measured and used."""
        return self.network if self.average is None else self.average

    def forward(self, inputs: Any) -> tuple[Tensor]:
        """Log-probabilities (B, C) without dropout, as the first of what a model answers."""
        return (together(by_member(self.serving(inputs, None))),)

    @torch.no_grad()
    def follow(self, share: Tensor) -> None:
        """Move the average this share, a number on the device, of the way to the weights."""
        if self.average is None:
            return
        for slow, fast in zip(self.average.parameters(), self.network.parameters(), strict=True):
            slow.lerp_(fast, share)


def average_share(decay: float, updates: int) -> float:
    """How far the average goes: less and less at first, so that the start of the run is soon forgotten."""
    return 1.0 - min(decay, (1 + updates) / (10 + updates))
