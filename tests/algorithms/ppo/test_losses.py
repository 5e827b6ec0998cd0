"""PPO's losses on samples worked out by hand, and that shares of cohorts add up to the whole."""

import math

import pytest
import torch
from torch import nn

from lockstep.algorithms.ppo.losses import CloningLoss, Minibatch, PPOLoss
from lockstep.rl.distributions import CategoricalActions, GaussianActions


class Table(nn.Module):
    """Two actions with given logits, one value: weights that can be read off."""

    def __init__(self, logits, value):
        super().__init__()
        self.logits, self.value = nn.Parameter(torch.tensor(logits)), nn.Parameter(torch.tensor(value))

    def forward(self, observation):
        return self.logits.expand(len(observation), -1), self.value.expand(len(observation))


def batch(share=None, moments=(0.0, 1.0), **columns):
    rollout = {name: torch.tensor(values) for name, values in columns.items()}
    count = len(rollout["action"])
    rollout.setdefault("observation", torch.zeros(count, 1))
    return Minibatch(rollout, torch.arange(count), torch.tensor(moments), share or 1.0 / count)


def one_sample(old_probability, advantage, target=0.0, value=0.0):
    return batch(
        action=[0],
        log_probability=[math.log(old_probability)],
        advantage=[advantage],
        target=[target],
        value=[value],
    )


TWO_ACTIONS = CategoricalActions()


def loss(network, actions=TWO_ACTIONS, **settings):
    defaults = {"clip_range": 0.2, "clip_range_vf": None, "ent_coef": 0.0, "vf_coef": 0.0, "normalize_advantage": False}
    return PPOLoss(network, actions, **{**defaults, **settings})


@pytest.mark.parametrize(
    ("old_probability", "advantage", "expected"),
    [
        (0.5, 2.0, -2.0),  # ratio 1
        (0.25, 1.0, -1.2),  # ratio 2 is clipped to 1.2 when it would be rewarded
        (0.25, -1.0, 2.0),  # and counts in full when it is to be punished
        (0.625, 1.0, -0.8),  # ratio 0.8, at the edge
        (1.0, -1.0, 0.8),  # ratio 0.5 is clipped to 0.8
    ],
)
def test_the_surrogate_is_clipped_on_the_right_side(old_probability, advantage, expected):
    value, metrics = loss(Table([0.0, 0.0], 0.0))(one_sample(old_probability, advantage))
    torch.testing.assert_close(value, torch.tensor(expected))
    torch.testing.assert_close(metrics["policy_loss"], value.detach())


def test_value_error_is_half_the_square_and_can_be_clipped():
    network = Table([0.0, 0.0], 3.0)
    plain, _ = loss(network, vf_coef=1.0)(one_sample(0.5, 0.0, target=1.0, value=0.0))
    assert float(plain) == 2.0
    # Clipped to 0.5 the error would be 0.25; the larger of both counts.
    clipped, _ = loss(network, vf_coef=1.0, clip_range_vf=0.5)(one_sample(0.5, 0.0, target=0.0, value=0.0))
    assert float(clipped) == 4.5


def test_entropy_is_rewarded():
    value, metrics = loss(Table([0.0, 0.0], 0.0), ent_coef=0.1)(one_sample(0.5, 0.0))
    torch.testing.assert_close(value, torch.tensor(-0.1 * math.log(2)))
    torch.testing.assert_close(metrics["entropy"], torch.tensor(math.log(2)))


def test_kl_and_clip_fraction_count_what_moved():
    _, metrics = loss(Table([0.0, 0.0], 0.0))(
        batch(
            action=[0, 0],
            log_probability=[math.log(0.5), math.log(0.25)],
            advantage=[0.0, 0.0],
            target=[0.0, 0.0],
            value=[0.0, 0.0],
        )
    )
    torch.testing.assert_close(metrics["approx_kl"], torch.tensor((2 - 1 - math.log(2)) / 2))
    assert float(metrics["clip_fraction"]) == 0.5


def test_shares_of_uneven_parts_add_up_to_the_whole_gradient():
    columns = {
        "action": [0, 1, 0, 1, 1],
        "log_probability": [-0.7, -0.6, -0.9, -0.5, -0.8],
        "advantage": [1.0, -2.0, 0.5, 3.0, -1.0],
        "target": [1.0, 2.0, 3.0, 4.0, 5.0],
        "value": [0.0] * 5,
    }

    def gradient(parts):
        network = Table([0.3, -0.2], 0.1)
        module = loss(network, vf_coef=0.5, ent_coef=0.01, normalize_advantage=True)
        for part in parts:
            cut = {name: values[part] for name, values in columns.items()}
            module(batch(share=0.2, moments=(0.3, 2.0), **cut))[0].backward()
        return torch.cat([network.logits.grad, network.value.grad.view(1)])

    whole = gradient([slice(0, 5)])
    torch.testing.assert_close(gradient([slice(0, 3), slice(3, 5)]), whole)
    torch.testing.assert_close(gradient([slice(0, 1), slice(1, 5)]), whole)


def test_cloning_is_the_teachers_likelihood():
    module = CloningLoss(Table([math.log(3.0), 0.0], 1.0), CategoricalActions(), vf_coef=0.0)
    value, metrics = module(
        batch(action=[0, 1], log_probability=[0.0, 0.0], advantage=[0.0, 0.0], target=[0.0, 0.0], value=[0.0, 0.0])
    )
    torch.testing.assert_close(value, torch.tensor(-(math.log(0.75) + math.log(0.25)) / 2))
    assert float(metrics["cloning_accuracy"]) == 0.5


def test_cloning_of_continuous_actions_is_their_density():
    module = CloningLoss(Table([0.0, 0.0], 1.0), GaussianActions(1), vf_coef=0.0)
    value, metrics = module(batch(action=[[1.0]], log_probability=[0.0], advantage=[0.0], target=[0.0], value=[0.0]))
    torch.testing.assert_close(value, torch.tensor(0.5 + 0.5 * math.log(2 * math.pi)))
    assert "cloning_accuracy" not in metrics


def test_continuous_actions_are_weighed_by_their_density():
    """A normal action 1 above the mean, which lay at it before: the ratio is exp(-1/2)."""
    at_mean = -0.5 * math.log(2 * math.pi)
    sample = batch(action=[[1.0]], log_probability=[at_mean], advantage=[-1.0], target=[0.0], value=[0.0])
    value, metrics = loss(Table([0.0, 0.0], 0.0), GaussianActions(1), clip_range=0.9)(sample)
    torch.testing.assert_close(value, torch.tensor(math.exp(-0.5)))
    torch.testing.assert_close(metrics["entropy"], torch.tensor(0.5 * math.log(2 * math.pi * math.e)))
