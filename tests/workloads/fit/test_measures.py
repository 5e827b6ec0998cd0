"""Losses and metrics, from numbers worked out by hand."""

import pytest
import torch
from torch import nn

from lockstep.algorithms.supervised.objectives import CrossEntropy, absolute_error, squared_error
from lockstep.algorithms.supervised.tallies import RegressionTally
from lockstep.errors import UserError


class Given(nn.Module):
    """Predicts its input times a weight of 1."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        return inputs * self.weight


def test_regression_is_measured_over_all_samples_exactly_once(build):
    # Errors 1, -1, 0, 2, and 0: squares add up to 6, absolute values to 4; targets 0..4 have a sum of squares of 10.
    data = [(torch.tensor([number + error]), float(number)) for number, error in enumerate([1.0, -1.0, 0.0, 2.0, 0.0])]
    measured = build(Given(), data, data, loss="mse").evaluate(10**9, 0).measured
    assert measured["samples"] == 5
    assert measured["loss"] == pytest.approx(6 / 5)
    assert measured["rmse"] == pytest.approx((6 / 5) ** 0.5)
    assert measured["mae"] == pytest.approx(4 / 5)
    assert measured["r2"] == pytest.approx(1 - 6 / 10)


def test_targets_without_variance_have_no_share_of_it_explained():
    tally = RegressionTally(squared_error, {"mae": absolute_error})
    total = tally.count(torch.tensor([[1.0], [3.0]]), None, torch.tensor([2.0, 2.0]), torch.ones(2))
    assert tally.numbers(total) == {"samples": 2, "loss": 1.0, "mae": 1.0, "rmse": 1.0}


def test_errors_of_many_numbers_are_averaged_within_a_sample():
    prediction, target = torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 4.0]])
    assert squared_error(prediction, target).tolist() == [5.0, 8.0]
    assert absolute_error(prediction, target).tolist() == [2.0, 2.0]
    with pytest.raises(UserError, match="expected are equal shapes"):
        squared_error(torch.zeros(3, 1), torch.zeros(2))


def test_cross_entropy_is_torchs():
    logits, target = torch.randn(7, 4), torch.arange(7) % 4
    for smoothing in (0.0, 0.2):
        expected = nn.CrossEntropyLoss(reduction="none", label_smoothing=smoothing)(logits, target)
        torch.testing.assert_close(CrossEntropy(0.0, smoothing)(logits, target), expected)


def test_own_metrics_and_an_own_evaluation_are_added(build, monkeypatch):
    data = [(torch.tensor([float(number), 2.0]), int(number < 2)) for number in range(5)]
    learner = build(Given(), data, data, metrics={"first": lambda p, t: p[:, 0]})
    # The mean of 0 to 4; the second number is the larger one for 0 and 1, and a tie goes to the first.
    measured = learner.evaluate(10**9, 0).measured
    assert (measured["first"], measured["accuracy"]) == (2.0, 1.0)
    reports = learner.step()
    assert "train/first" in reports[0] and "train/accuracy" in reports[0]


def test_an_own_evaluation_adds_its_numbers(build):
    from lockstep.launch import given

    data = [(torch.tensor([float(number), 2.0]), int(number < 2)) for number in range(5)]

    def evaluate(predict, val_set):
        return {"largest": predict(torch.stack([inputs for inputs, _ in val_set])).max()}

    learner = build(Given(), data, data, evaluation=given.give(evaluate, "evaluate"))
    assert learner.evaluate(10**9, 0).measured["largest"] == 4.0


def test_weights_that_a_user_froze_stay(build):
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    data = [(torch.tensor([float(number), 2.0]), int(number < 2)) for number in range(20)]
    learner = build(model, data, data, weight_decay=0.5, sync="exact")
    for _ in range(3):
        learner.step()
    assert torch.equal(learner.model.network.net[0].weight, model[0].weight)
    assert not torch.equal(learner.model.network.net[2].weight, model[2].weight)
