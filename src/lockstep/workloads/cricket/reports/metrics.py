"""Metrics of predictions, counted as sums, so that ranks and lanes can be added up. B: samples."""

from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.supervised.dataset import basic_sums
from lockstep.workloads.cricket.columns import OUTCOME_RUNS, OUTCOMES, PHASES
from lockstep.workloads.cricket.data.samples import Samples

BINS = 15
"""Equal-width bins of the predicted probability, for calibration."""
SHIFT = 0.8
"""Shifted predictions divide probabilities by prior**SHIFT: the most probable outcome is nearly always dot or single,
so without it rare outcomes would never be predicted."""
_CLASSES = len(OUTCOMES)
_SHAPES: dict[str, tuple[int, ...]] = {
    "basic": (3,),
    "top": (2,),
    "confusion": (_CLASSES, _CLASSES),
    "shifted": (_CLASSES, _CLASSES),
    "confidence": (BINS, 3),
    "reliability": (_CLASSES, BINS, 3),
    "runs": (3,),
    "brier": (1,),
    "phases": (len(PHASES), 3),
}
"""The sums and their shapes. Rows of a confusion are true outcomes; a last axis of 3 in `confidence` and `reliability`
is (samples, sum of probabilities, number of occurrences)."""


class OutcomeTally:
    """Sums over predictions, from which all metrics are computed."""

    size = sum(torch.Size(shape).numel() for shape in _SHAPES.values())
    watched = "log_loss"

    def __init__(self, prior: Tensor) -> None:
        """`prior`: (7,) frequency of each outcome in training."""
        self.device = prior.device
        self._log_prior = prior.clamp(min=1e-6).log()
        self._runs = torch.tensor(OUTCOME_RUNS, dtype=torch.float64, device=prior.device)

    def count(self, log_probabilities: Tensor, inputs: Samples, label: Tensor, weight: Tensor) -> Tensor:
        """See Tally."""
        return self.sums(log_probabilities, inputs.phase, label, weight)

    def sums(self, log_probabilities: Tensor, phase: Tensor, label: Tensor, weight: Tensor) -> Tensor:
        """Like `count`, given only the phases (B,) of the inputs."""
        # In float64, so that sums over a whole validation set lose nothing to rounding.
        weight64, probabilities = weight.double(), log_probabilities.double().exp()
        truth = _one_hot(label, _CLASSES)
        best = log_probabilities.topk(3, dim=1).indices == label[:, None]
        shifted = (log_probabilities - SHIFT * self._log_prior).argmax(1)
        highest, predicted = probabilities.max(1)
        expected = probabilities @ self._runs - self._runs[label]
        by_phase = _one_hot(phase, len(PHASES)) * weight64[:, None]
        log_loss = -(log_probabilities.double() * truth).sum(1)
        hit = (predicted == label).double()
        sums = {
            "basic": torch.stack(basic_sums(log_probabilities, label, weight)),
            "top": torch.stack([(best[:, :top].any(1) * weight64).sum() for top in (2, 3)]),
            "confusion": (truth * weight64[:, None]).T @ _one_hot(predicted, _CLASSES),
            "shifted": (truth * weight64[:, None]).T @ _one_hot(shifted, _CLASSES),
            "confidence": _binned(highest[:, None], hit[:, None], weight64)[0],
            "reliability": _binned(probabilities, truth, weight64),
            "runs": torch.stack([(part * weight64).sum() for part in (expected, expected.abs(), expected.square())]),
            "brier": ((probabilities - truth).square().sum(1) * weight64).sum()[None],
            "phases": by_phase.T @ torch.stack([torch.ones_like(weight64), log_loss, hit], 1),
        }
        return torch.cat([sums[name].flatten() for name in _SHAPES])

    def numbers(self, total: Tensor) -> dict[str, float]:
        """See Tally; all scalar metrics."""
        return dict(numbers(unfold(total)))


def _one_hot(number: Tensor, count: int) -> Tensor:
    """(..., count) float64."""
    # Not torch's one_hot, which checks the values and so synchronises with the GPU.
    return (number[..., None] == torch.arange(count, device=number.device)).double()


def _binned(probability: Tensor, occurred: Tensor, weight: Tensor) -> Tensor:
    """Sums per bin, from predictions and occurrences (B, K) -> (K, BINS, 3)."""
    place = _one_hot((probability * BINS).long().clamp(max=BINS - 1), BINS) * weight[:, None, None]
    parts = torch.stack([torch.ones_like(probability), probability, occurred], -1)
    return torch.einsum("bkn,bkt->knt", place, parts)


def unfold(total: Tensor) -> dict[str, Tensor]:
    """The sums by name, each in its shape."""
    parts = total.split([torch.Size(shape).numel() for shape in _SHAPES.values()])
    return {name: part.view(shape) for (name, shape), part in zip(_SHAPES.items(), parts, strict=True)}


def numbers(sums: dict[str, Tensor]) -> dict[str, float]:
    """All scalar metrics by name."""
    samples, log_loss, hits = sums["basic"].tolist()
    runs, top = (sums["runs"] / samples).tolist(), (sums["top"] / samples).tolist()
    result = {
        "samples": samples,
        "log_loss": log_loss / samples,
        "accuracy": hits / samples,
        "brier": float(sums["brier"]) / samples,
        "macro_f1": macro_f1(sums["confusion"]),
        "weighted_f1": weighted_f1(sums["confusion"]),
        "top_2_accuracy": top[0],
        "top_3_accuracy": top[1],
        "ece": calibration_error(sums["confidence"]),
        "classwise_ece": float(sum(calibration_error(bins) for bins in sums["reliability"])) / _CLASSES,
        "expected_runs_bias": runs[0],
        "expected_runs_mae": runs[1],
        "expected_runs_rmse": runs[2] ** 0.5,
        "shifted_macro_f1": macro_f1(sums["shifted"]),
        "shifted_accuracy": float(sums["shifted"].trace()) / samples,
    }
    for phase, (count, loss, hit) in zip(PHASES, sums["phases"].tolist(), strict=True):
        if count:
            result |= {f"{phase}_log_loss": loss / count, f"{phase}_accuracy": hit / count}
    return result


def per_class(confusion: Tensor) -> list[dict[str, Any]]:
    """Precision, recall, F1 and support of each outcome."""
    rows = []
    for number, outcome in enumerate(OUTCOMES):
        # Rows are true outcomes, columns predictions.
        hit, predicted, actual = (
            float(x) for x in (confusion[number, number], confusion[:, number].sum(), confusion[number].sum())
        )
        rows.append(
            {
                "outcome": outcome,
                "precision": hit / predicted if predicted else 0.0,
                "recall": hit / actual if actual else 0.0,
                "f1": 2 * hit / (predicted + actual) if predicted + actual else 0.0,
                "support": int(actual),
            }
        )
    return rows


def macro_f1(confusion: Tensor) -> float:
    """The unweighted mean F1 of all outcomes."""
    return sum(row["f1"] for row in per_class(confusion)) / _CLASSES


def weighted_f1(confusion: Tensor) -> float:
    """The mean F1 of all outcomes, weighted by their frequency."""
    rows = per_class(confusion)
    return sum(row["f1"] * row["support"] for row in rows) / max(sum(row["support"] for row in rows), 1)


def calibration_error(bins: Tensor) -> float:
    """Expected calibration error of (BINS, 3) sums: the mean gap per bin, weighted by its samples."""
    samples = float(bins[:, 0].sum())
    return float((bins[:, 1] - bins[:, 2]).abs().sum()) / samples if samples else 0.0


def report(total: Tensor) -> dict[str, Any]:
    """All results, for a JSON file: scalar metrics, per-class table, confusion and reliability."""
    sums = unfold(total)
    return {
        **numbers(sums),
        "samples": int(sums["basic"][0]),
        "outcomes": list(OUTCOMES),
        "per_class": per_class(sums["confusion"]),
        "per_class_shifted": per_class(sums["shifted"]),
        "confusion_matrix": sums["confusion"].long().tolist(),
        "shifted_confusion_matrix": sums["shifted"].long().tolist(),
        "reliability": {
            "confidence": _points(sums["confidence"]),
            **{outcome: _points(bins) for outcome, bins in zip(OUTCOMES, sums["reliability"], strict=True)},
        },
    }


def _points(bins: Tensor) -> list[dict[str, float]]:
    """For each non-empty bin: samples, mean forecast, and observed frequency (`came`)."""
    return [
        {"samples": int(count), "forecast": forecast / count, "came": occurred / count}
        for count, forecast, occurred in bins.tolist()
        if count
    ]
