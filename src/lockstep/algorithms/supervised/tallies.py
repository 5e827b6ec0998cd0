"""The sums of a validation for any per-sample loss and metrics, and for regression. B: samples."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.supervised.losses import PerSample, each_of


class MetricTally:
    """The mean of the loss and of each metric over the samples."""

    def __init__(self, loss: PerSample, metrics: Mapping[str, PerSample], watched: str = "loss") -> None:
        self._functions: dict[str, PerSample] = {"loss": loss, **metrics}
        self.size = 1 + len(self._functions)
        self.watched = watched

    def count(self, prediction: Any, inputs: Any, label: Any, weight: Tensor) -> Tensor:
        """See Tally."""
        # float64: sums of many samples then do not depend noticeably on how batches and ranks divide them.
        wide = weight.double()
        sums = [wide.sum()]
        for name, function in self._functions.items():
            what = "loss" if name == "loss" else f"metric {name}"
            sums.append((each_of(what, function, prediction, label, len(weight)).double() * wide).sum())
        return torch.stack(sums)

    def numbers(self, total: Tensor) -> dict[str, float]:
        """See Tally."""
        samples, *sums = total.tolist()
        return {"samples": samples, **{name: part / samples for name, part in zip(self._functions, sums, strict=True)}}


class RegressionTally(MetricTally):
    """Also the root of the mean squared error, and the share of the targets' variance that is explained (R^2)."""

    def __init__(self, loss: PerSample, metrics: Mapping[str, PerSample]) -> None:
        super().__init__(loss, metrics)
        self._plain = self.size
        self.size += 4

    def count(self, prediction: Tensor, inputs: Any, label: Tensor, weight: Tensor) -> Tensor:
        """See Tally."""
        wide = weight.double()[:, None]
        truth = label.double().reshape(len(label), -1)
        error = prediction.double().reshape(len(label), -1) - truth
        parts = (torch.ones_like(truth), error.square(), truth, truth.square())
        sums = torch.stack([(part * wide).sum() for part in parts])
        return torch.cat([super().count(prediction, inputs, label, weight), sums])

    def numbers(self, total: Tensor) -> dict[str, float]:
        """See Tally."""
        count, squares, truth, truth_squares = total[self._plain :].tolist()
        variance = truth_squares - truth**2 / count
        # Targets that are all equal have no variance to explain.
        explained = {"r2": 1.0 - squares / variance} if variance > 0 else {}
        return {**super().numbers(total[: self._plain]), "rmse": (squares / count) ** 0.5, **explained}
