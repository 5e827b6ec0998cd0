"""Regression as classification: two-hot targets over bins in symlog space, predicted as logits. K: bins."""

from dataclasses import dataclass

import torch
from torch import Tensor


def symlog(value: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): nearly linear around zero, and compresses large values of either sign."""
    return torch.sign(value) * torch.log1p(torch.abs(value))


def symexp(value: Tensor) -> Tensor:
    """The inverse of `symlog`."""
    return torch.sign(value) * torch.expm1(torch.abs(value))


@dataclass(frozen=True)
class Bins:
    """K equally spaced bins from low to high, in units of `symlog`."""

    low: float = -10.0
    high: float = 10.0
    count: int = 101

    @property
    def width(self) -> float:
        """Distance between neighbouring bins."""
        return (self.high - self.low) / (self.count - 1)

    def spread(self, value: Tensor) -> Tensor:
        """Two-hot weights of the bins next to each value: (...) -> (..., K), adding up to one."""
        place = (symlog(value).clamp(self.low, self.high) - self.low) / self.width
        # A triangle around each bin: 1 at the bin itself, 0 from its neighbours on.
        return (1.0 - (place.unsqueeze(-1) - self._numbers(value)).abs()).clamp(min=0.0)

    def expected(self, logits: Tensor) -> Tensor:
        """The expected value of logits: (..., K) -> (...)."""
        # In float32 whatever the precision of the networks: symexp turns small errors into large ones.
        centres = self._numbers(logits) * self.width + self.low
        return symexp((torch.softmax(logits.float(), -1) * centres).sum(-1))

    def cross_entropy(self, logits: Tensor, value: Tensor) -> Tensor:
        """Cross-entropy (...) of logits (..., K) against values (...); logits may have more leading axes."""
        # The weights add up to one, so the logits' normaliser can be taken out of the sum.
        logits = logits.float()
        return torch.logsumexp(logits, -1) - (self.spread(value) * logits).sum(-1)

    def _numbers(self, like: Tensor) -> Tensor:
        return torch.arange(self.count, dtype=torch.float32, device=like.device)
