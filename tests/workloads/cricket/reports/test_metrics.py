"""Metrics worked out by hand, and sums that can be added in any number of parts."""

from types import SimpleNamespace

import pytest
import torch

from lockstep.workloads.cricket.reports import metrics
from lockstep.workloads.cricket.reports.metrics import OutcomeTally

PRIOR = torch.tensor([0.4, 0.3, 0.1, 0.01, 0.1, 0.04, 0.05])


def forecasts(*rows):
    """Each row: probabilities of dot, single and wicket; the rest is spread over the others."""
    table = torch.full((len(rows), 7), 0.0)
    for number, (dot, single, wicket) in enumerate(rows):
        table[number] = (1 - dot - single - wicket) / 4
        table[number, [0, 1, 6]] = torch.tensor([dot, single, wicket])
    return table.log()


LOGS = forecasts((0.6, 0.2, 0.1), (0.3, 0.5, 0.1), (0.6, 0.2, 0.1), (0.1, 0.1, 0.7))
LABELS = torch.tensor([0, 0, 1, 6])
PHASE = torch.tensor([0, 0, 1, 2])


def count(rows, weight=None):
    rows = torch.tensor(rows)
    weight = torch.ones(len(rows)) if weight is None else torch.tensor(weight)
    return OutcomeTally(PRIOR).count(LOGS[rows], SimpleNamespace(phase=PHASE[rows]), LABELS[rows], weight)


def test_four_predictions_worked_out_by_hand():
    found = OutcomeTally(PRIOR).numbers(count([0, 1, 2, 3]))
    assert found["samples"] == 4
    assert found["log_loss"] == pytest.approx(-torch.tensor([0.6, 0.3, 0.2, 0.7]).log().mean().item(), rel=1e-6)
    assert found["accuracy"] == 0.5
    assert found["top_2_accuracy"] == found["top_3_accuracy"] == 1.0
    # Dot: predicted twice, right once, occurred twice; wicket: always right; single: predicted once, wrong.
    assert found["macro_f1"] == pytest.approx((0.5 + 1.0) / 7)
    assert found["weighted_f1"] == pytest.approx((0.5 * 2 + 0.0 * 1 + 1.0 * 1) / 4)
    # The two forecasts of 0.6 are right once: off by 0.2 together. 0.5 is wrong, 0.7 right: off by 0.5 and by 0.3.
    assert found["ece"] == pytest.approx((0.2 + 0.5 + 0.3) / 4, rel=1e-5)
    assert found["middle_log_loss"] == pytest.approx(-torch.tensor(0.2).log().item(), rel=1e-6)
    assert (found["powerplay_accuracy"], found["middle_accuracy"], found["death_accuracy"]) == (0.5, 0.0, 1.0)
    # 2, 3, 4 and 6 share the rest equally, and a wicket brings none: 0.2 + 15 x 0.025 runs are expected of the first.
    errors = [0.2 + 15 * 0.025, 0.5 + 15 * 0.025, 0.2 + 15 * 0.025 - 1, 0.1 + 15 * 0.025]
    assert found["expected_runs_bias"] == pytest.approx(sum(errors) / 4, rel=1e-5)
    assert found["expected_runs_mae"] == pytest.approx(sum(map(abs, errors)) / 4, rel=1e-5)


def test_sums_are_additive_and_ignore_padding():
    whole = count([0, 1, 2, 3])
    parts = count([3, 0, 0], [1.0, 1.0, 0.0]) + count([2, 1, 1], [1.0, 1.0, 0.0])
    torch.testing.assert_close(parts, whole)


def test_shifted_predictions_prefer_outcomes_above_their_prior():
    logs = forecasts((0.42, 0.28, 0.15))
    inputs = SimpleNamespace(phase=torch.zeros(1, dtype=torch.int64))
    sums = metrics.unfold(OutcomeTally(PRIOR).count(logs, inputs, torch.tensor([6]), torch.ones(1)))
    # 0.15 / 0.05^0.8 = 1.65 is more than 0.0375 / 0.01^0.8 = 1.49 and 0.42 / 0.4^0.8 = 0.87: wicket is predicted.
    assert sums["shifted"].nonzero().tolist() == [[6, 6]]
    assert sums["confusion"].nonzero().tolist() == [[6, 0]]


def test_a_report_has_every_table():
    found = metrics.report(count([0, 1, 2, 3]))
    assert [row["outcome"] for row in found["per_class"]] == found["outcomes"]
    assert sum(map(sum, found["confusion_matrix"])) == 4
    dots = found["reliability"]["dot"]
    assert sum(point["samples"] for point in dots) == 4
    assert dots[-1] == {"samples": 2, "forecast": pytest.approx(0.6), "came": 0.5}


def test_charts_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    from lockstep.workloads.cricket.reports import report

    results = {"matches": 1, "measured_on": "validation", **metrics.report(count([0, 1, 2, 3]))}
    for path in report.draw(results, tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
    text = report.text(results)
    assert "log loss" in text and "wicket" in text
