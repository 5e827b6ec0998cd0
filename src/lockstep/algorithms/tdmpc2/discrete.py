"""Numbers as classes: a value is spread over bins of its logarithm, and a network answers with logits. K: bins."""

from dataclasses import dataclass

import torch
from torch import Tensor


def symlog(value: Tensor) -> Tensor:
    """The logarithm of a number's size, with the number's sign: gentle near zero, and everything fits in."""
    return torch.sign(value) * torch.log1p(torch.abs(value))


def symexp(value: Tensor) -> Tensor:
    """The inverse of `symlog`."""
    return torch.sign(value) * torch.expm1(torch.abs(value))


@dataclass(frozen=True)
class Bins:
    """K bins at equal distances from low to high, in units of `symlog`."""

    low: float = -10.0
    high: float = 10.0
    count: int = 101

    @property
    def width(self) -> float:
        """From one bin to the next."""
        return (self.high - self.low) / (self.count - 1)

    def spread(self, value: Tensor) -> Tensor:
        """Weights of the two bins next to each value: (...) -> (..., K), adding up to one."""
        place = (symlog(value).clamp(self.low, self.high) - self.low) / self.width
        # A tent over each bin: one on the spot, nothing from the next bin on.
        return (1.0 - (place.unsqueeze(-1) - self._numbers(value)).abs()).clamp(min=0.0)

    def expected(self, logits: Tensor) -> Tensor:
        """The value that logits stand for: (..., K) -> (...)."""
        centres = self._numbers(logits) * self.width + self.low
        return symexp((torch.softmax(logits.float(), -1) * centres).sum(-1))

    def cross_entropy(self, logits: Tensor, value: Tensor) -> Tensor:
        """How badly logits (..., K) predict values (...): (...). The target's weights may have more axes in front."""
        # The weights add up to one, so the logits' normaliser can be taken out of the sum.
        logits = logits.float()
        return torch.logsumexp(logits, -1) - (self.spread(value) * logits).sum(-1)

    def _numbers(self, like: Tensor) -> Tensor:
        return torch.arange(self.count, dtype=torch.float32, device=like.device)
