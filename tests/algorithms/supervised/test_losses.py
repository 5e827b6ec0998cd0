"""Losses worked out by hand, and shares of a batch that add up."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.algorithms.supervised.dataset import class_counts
from lockstep.algorithms.supervised.losses import (
    Batch,
    ClassificationLoss,
    batch_weights,
    inverse_frequency,
    sample_losses,
)
from lockstep.algorithms.supervised.members import by_member, together


def one(probabilities, label, gamma=0.0, smoothing=0.0):
    log = torch.tensor([probabilities]).log()
    return float(sample_losses(log, log[:, label], gamma, smoothing))


def test_cross_entropy_focal_and_smoothed():
    assert one([0.5, 0.25, 0.25], 1) == pytest.approx(math.log(4))
    # A probability of 0.25 gives the focal factor (1 - 0.25) ** 2.
    assert one([0.5, 0.25, 0.25], 1, gamma=2.0) == pytest.approx(0.5625 * math.log(4))
    mean = (math.log(2) + 2 * math.log(4)) / 3
    assert one([0.5, 0.25, 0.25], 1, smoothing=0.3) == pytest.approx(0.7 * math.log(4) + 0.3 * mean)


def test_label_smoothing_equals_pytorchs():
    logits, label = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    log = F.log_softmax(logits, 1)
    value = sample_losses(log, log.gather(1, label[:, None]).squeeze(1), 0.0, 0.1)
    torch.testing.assert_close(value.mean(), F.cross_entropy(logits, label, label_smoothing=0.1))


def test_inverse_frequencies():
    counts = torch.tensor([6.0, 3.0, 0.0])
    assert inverse_frequency(counts, 1.0).tolist() == [0.5, 1.0, 0.0]
    assert inverse_frequency(counts, 0.5).tolist() == pytest.approx([0.5**0.5, 1.0, 0.0])


def test_class_counts_of_all_lanes_cover_every_sample(points):
    data = points((50, 0, 21))
    parts = [class_counts(data, range(lane, lane + 1), 4, torch.device("cpu")) for lane in range(4)]
    labels = torch.cat([data.labels(group, torch.arange(size)) for group, size in enumerate(data.sizes)])
    assert sum(parts).tolist() == torch.bincount(labels, minlength=2).double().tolist()
    assert all(part.sum() in (17, 18, 19) for part in parts)


class Fixed(nn.Module):
    """Logits that do not depend on the input."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.3, -0.2]))

    def forward(self, inputs, noise):
        return self.logits.expand(len(inputs), 2)


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 3.0])])
def test_shares_of_uneven_parts_with_padding_add_up_to_the_mean_over_all_samples(points, weights):
    data = points((30, 30))
    parts = [(0, torch.arange(7), torch.tensor([1.0, 1, 1, 0, 0, 1, 1])), (1, torch.arange(11), torch.ones(11))]
    labels = [data.labels(group, index)[None] for group, index, _ in parts]
    weight = batch_weights([each[None] for _, _, each in parts], labels, weights)
    loss = ClassificationLoss(Fixed(), weights)
    share, count_share = (1 / weight[0]).float(), torch.tensor(1 / 16)
    found = [loss(Batch(data, g, i, w, torch.zeros_like(i), share, count_share)) for g, i, w in parts]
    everyone = torch.cat([label[0][each > 0] for label, (_, _, each) in zip(labels, parts, strict=True)])
    expected = F.cross_entropy(Fixed().logits.expand(16, 2), everyone, weight=weights)
    torch.testing.assert_close(found[0][0] + found[1][0], expected)
    plain = F.cross_entropy(Fixed().logits.expand(16, 2), everyone)
    torch.testing.assert_close(found[0][1]["log_loss"] + found[1][1]["log_loss"], plain.detach())


def test_predictions_average_the_probabilities_of_members():
    logits = torch.tensor([[[0.0, 0.0], [math.log(9.0), 0.0]]])
    log_probabilities = by_member(logits)
    torch.testing.assert_close(log_probabilities.exp(), torch.tensor([[[0.5, 0.5], [0.9, 0.1]]]))
    torch.testing.assert_close(together(log_probabilities).exp(), torch.tensor([[0.7, 0.3]]))
    alone = torch.randn(4, 3)
    torch.testing.assert_close(together(by_member(alone)), F.log_softmax(alone, 1))


class Two(Fixed):
    """Two members with different logits."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([[0.3, -0.2], [1.0, 0.5]]))

    def forward(self, inputs, noise):
        return self.logits.expand(len(inputs), 2, 2)


def test_the_loss_is_the_mean_of_the_members_losses(points):
    data, index = points((8,)), torch.arange(8)
    eighth = torch.tensor(1 / 8)
    batch = Batch(data, 0, index, torch.ones(8), torch.zeros_like(index), eighth, eighth)
    loss, metrics = ClassificationLoss(Two())(batch)
    labels, opinions = data.labels(0, index), Two().logits
    apart = [F.cross_entropy(opinion.expand(8, 2), labels) for opinion in opinions]
    torch.testing.assert_close(loss, sum(apart) / 2)
    mean = opinions.softmax(1).mean(0)
    torch.testing.assert_close(metrics["log_loss"], -mean[labels].log().mean().detach())
