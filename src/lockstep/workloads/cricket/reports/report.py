"""Evaluation reports: text for the terminal, and charts of confusion and calibration."""

from pathlib import Path
from typing import Any

from lockstep.errors import UserError

_HEADLINE = (
    ("log_loss", "log loss", ".4f"),
    ("accuracy", "accuracy", ".4f"),
    ("brier", "Brier score", ".4f"),
    ("ece", "calibration error (ECE)", ".4f"),
    ("classwise_ece", "calibration error by class", ".4f"),
    ("macro_f1", "macro F1", ".4f"),
    ("weighted_f1", "weighted F1", ".4f"),
    ("top_2_accuracy", "top-2 accuracy", ".4f"),
    ("top_3_accuracy", "top-3 accuracy", ".4f"),
    ("expected_runs_mae", "expected runs, mean error", ".4f"),
    ("expected_runs_bias", "expected runs, bias", "+.4f"),
    ("shifted_macro_f1", "macro F1, shifted thresholds", ".4f"),
    ("shifted_accuracy", "accuracy, shifted thresholds", ".4f"),
)


def text(results: dict[str, Any]) -> str:
    """The report as lines."""
    lines = [f"{results['samples']:,} deliveries of {results['matches']:,} matches ({results['measured_on']})", ""]
    lines += [f"{title:30} {results[name]:{form}}" for name, title, form in _HEADLINE]
    for phase in ("powerplay", "middle", "death"):
        if f"{phase}_log_loss" in results:
            loss, hits = results[f"{phase}_log_loss"], results[f"{phase}_accuracy"]
            lines.append(f"{phase + ' overs':30} {loss:.4f}   accuracy {hits:.4f}")
    lines += ["", _table(results), "", _confusion(results)]
    return "\n".join(lines)


def _table(results: dict[str, Any]) -> str:
    columns = f"{'precision':>10}{'recall':>8}{'F1':>8}"
    rows = [f"{'outcome':9}{columns}{'support':>9}   shifted:{columns}"]
    for row, shifted in zip(results["per_class"], results["per_class_shifted"], strict=True):
        rows.append(
            f"{row['outcome']:9}{row['precision']:10.3f}{row['recall']:8.3f}{row['f1']:8.3f}{row['support']:9,}"
            f"           {shifted['precision']:10.3f}{shifted['recall']:8.3f}{shifted['f1']:8.3f}"
        )
    return "\n".join(rows)


def _confusion(results: dict[str, Any]) -> str:
    names = results["outcomes"]
    rows = [f"{'actual / predicted':18}" + "".join(f"{name:>9}" for name in names)]
    for name, row in zip(names, results["confusion_matrix"], strict=True):
        rows.append(f"{name:18}" + "".join(f"{count:9,}" for count in row))
    return "\n".join(rows)


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write confusion.png and reliability.png into a folder; returns their paths."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("charts need matplotlib; pip install 'lockstep-train[plots]'") from error
    paths = [folder / "confusion.png", folder / "reliability.png"]
    figure = Figure(figsize=(7, 6), layout="constrained")
    _draw_confusion(figure.subplots(), results)
    figure.savefig(paths[0], dpi=120)
    figure = Figure(figsize=(12, 6), layout="constrained")
    for axes, (name, points) in zip(figure.subplots(2, 4).flat, results["reliability"].items(), strict=True):
        _draw_reliability(axes, name, points)
    figure.suptitle(
        f"forecast and observed frequency: calibration error {results['ece']:.4f}, log loss {results['log_loss']:.4f}"
    )
    figure.savefig(paths[1], dpi=120)
    return paths


def _draw_confusion(axes: Any, results: dict[str, Any]) -> None:
    names, counts = results["outcomes"], results["confusion_matrix"]
    shares = [[count / max(sum(row), 1) for count in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(names)), names, rotation=45)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("most probable outcome")
    axes.set_ylabel("actual outcome")
    axes.set_title("fraction of each actual outcome, and deliveries")
    for y, row in enumerate(counts):
        for x, count in enumerate(row):
            shade = "white" if shares[y][x] > 0.5 else "black"
            axes.text(x, y, f"{shares[y][x]:.2f}\n{count:,}", ha="center", va="center", fontsize=7, color=shade)


def _draw_reliability(axes: Any, name: str, points: list[dict[str, float]]) -> None:
    most = max((max(point["forecast"], point["came"]) for point in points), default=1.0) * 1.05
    axes.plot([0, most], [0, most], color="grey", linewidth=0.8)
    # Area by the bin's samples: bins with few are noise.
    size = [4 + 60 * point["samples"] / max(p["samples"] for p in points) for point in points]
    axes.scatter([p["forecast"] for p in points], [p["came"] for p in points], s=size)
    axes.set_title(name if name != "confidence" else "most probable outcome")
    axes.set_xlabel("forecast")
    axes.set_ylabel("observed")
