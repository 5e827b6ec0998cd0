"""Mean and standard deviation over the world, from sums that can be added over any number of parts."""

import torch
from torch import Tensor


def moment_sums(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """(sum, sum of squares, count) over the last axis in float64: (..., N) -> (..., 3); of `valid` ones, if given."""
    # float64: the variance is a difference of two large numbers when the mean is far from zero.
    wide = values.to(torch.float64)
    count = torch.full(wide.shape[:-1], float(wide.shape[-1]), dtype=torch.float64, device=values.device)
    if valid is not None:
        wide, count = torch.where(valid, wide, 0.0), valid.sum(-1).to(torch.float64)
    return torch.stack((wide.sum(-1), (wide * wide).sum(-1), count), dim=-1)


def mean_and_deviation(sums: Tensor) -> Tensor:
    """(mean, standard deviation) in float32 from the total of moment sums: (..., 3) -> (..., 2)."""
    total, squares, count = sums.unbind(-1)
    # Nothing at all has the mean 0, and not NaN, which would spoil gradients even where it is masked.
    count = count.clamp(min=1.0)
    mean = total / count
    # Bessel's correction, as in torch.std. Rounding can make the difference negative, hence the first clamp.
    variance = (squares / count - mean * mean).clamp(min=0.0) * count / (count - 1).clamp(min=1.0)
    return torch.stack((mean, variance.sqrt()), dim=-1).to(torch.float32)


class RunningMoments:
    """Mean and variance of all values of a run so far, in float64, updated in place: (N,) values at a time, or ()."""

    def __init__(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Start from these tensors, which are changed in place; a count of 0 makes the first values count alone."""
        self.mean, self.variance, self.count = mean, variance, count

    def add(self, sums: Tensor) -> None:
        """Take in the total of `moment_sums` over the world, (..., 3)."""
        total, squares, counts = sums.unbind(-1)
        new = counts.flatten()[0]
        mean = total / new
        variance = (squares / new - mean * mean).clamp(min=0.0)
        both = self.count + new
        change = mean - self.mean
        # Chan's update: both variances, and what the distance of the means adds.
        spread = self.variance * self.count + variance * new + change * change * self.count * new / both
        self.variance.copy_(spread / both)
        self.mean.add_(change * new / both)
        self.count.copy_(both)
