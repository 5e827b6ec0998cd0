"""The weights of a run: the trained ones and, optionally, their moving average over the updates."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.rl.target_networks import target_of


class SupervisedModel(nn.Module):
    """A network and the moving average of its weights; predictions use the average if there is one."""

    def __init__(self, network: nn.Module, averages: bool, serve: Callable[[Any], Any]) -> None:
        """`serve`: from the network's output to a prediction, see Objective."""
        super().__init__()
        self._serve = serve
        self.network = network
        # None rather than a copy: checkpoints then hold no second set of weights.
        self.average = target_of(network) if averages else None

    @property
    def serving(self) -> nn.Module:
        """The network that is validated and used for predictions."""
        return self.network if self.average is None else self.average

    def forward(self, inputs: Any) -> tuple[Any]:
        """The prediction without dropout, such as log-probabilities (B, C); in a tuple as every model returns it."""
        return (self._serve(self.serving(inputs, None)),)

    @torch.no_grad()
    def follow(self, share: Tensor) -> None:
        """Move the average towards the weights by `share`, a scalar on the device, as recorded graphs need."""
        if self.average is None:
            return
        for slow, fast in zip(self.average.parameters(), self.network.parameters(), strict=True):
            slow.lerp_(fast, share)


def average_share(decay: float, updates: int) -> float:
    """1 - decay; larger in the first updates."""
    # With the full decay from the start, the random initial weights would dominate the average for long.
    return 1.0 - min(decay, (1 + updates) / (10 + updates))
