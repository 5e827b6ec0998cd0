"""Steps that take no action: they enter no loss, no advantage, no statistic and no episode."""

import pytest
import torch
from torch import nn

from lockstep.algorithms.ppo.losses import Minibatch, PPOLoss
from lockstep.compute.moments import mean_and_deviation, moment_sums
from lockstep.rl.distributions import CategoricalActions
from lockstep.rl.rollout import EpisodeLedger, Rollout


class Linear(nn.Module):
    """A policy and a value from one number."""

    def __init__(self):
        super().__init__()
        self.policy, self.value = nn.Parameter(torch.tensor([0.3, -0.2])), nn.Parameter(torch.tensor(0.5))

    def forward(self, observation):
        return observation * self.policy, observation[:, 0] * self.value


def columns(valid):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.rand((6, 5), generator=generator)
    found = {
        "observation": numbers[:, :1],
        "action": torch.tensor([0, 1, 1, 0, 1, 0]),
        "log_probability": -numbers[:, 1],
        "value": numbers[:, 2],
        "ended": torch.zeros(6, dtype=torch.bool),
        "advantage": numbers[:, 3],
        "target": numbers[:, 4],
    }
    return found | ({} if valid is None else {"valid": torch.tensor(valid)})


def loss_of(valid, places, share):
    network = Linear()
    loss = PPOLoss(network, CategoricalActions(), 0.2, None, 0.01, 0.5, normalize_advantage=True)
    batch = Minibatch(columns(valid), torch.tensor(places), torch.tensor([0.4, 0.3]), share)
    found, metrics = loss(batch)
    found.backward()
    return [found.item(), *(value.item() for value in metrics.values()), *network.policy.grad.tolist()]


def test_a_loss_over_valid_steps_is_the_loss_without_the_others():
    valid = [True, False, True, True, False, True]
    masked = loss_of(valid, [0, 1, 2, 3, 4], torch.tensor(1 / 3))
    assert masked == pytest.approx(loss_of(None, [0, 2, 3], 1 / 3), rel=1e-6)
    assert masked != pytest.approx(loss_of(None, [0, 1, 2, 3, 4], 1 / 5), rel=1e-3)


def test_moments_of_valid_values_are_those_without_the_others():
    values = torch.tensor([[1.0, 50.0, 3.0, 5.0], [7.0, 7.0, 7.0, 7.0]])
    valid = torch.tensor([[True, False, True, True], [False, False, False, False]])
    sums = moment_sums(values, valid)
    assert sums.tolist() == [[9, 35, 3], [0, 0, 0]]
    # The mean of 1, 3 and 5 is 3, and their deviation 2.
    assert mean_and_deviation(sums).tolist() == [[3, 2], [0, 0]], "nothing at all is no reason for NaN"


def test_episodes_neither_contain_nor_end_with_steps_that_are_not_valid():
    ledger = EpisodeLedger(1, torch.device("cpu"))
    reward = torch.tensor([[1.0], [2.0], [0.0], [3.0], [4.0]])
    # A rollout marks a step that is not valid as an end, too: nothing reaches past it.
    ended = torch.tensor([[False], [True], [True], [False], [True]])
    valid = torch.tensor([[True], [True], [False], [True], [True]])
    episodes = ledger.close(reward, ended, {}, valid)
    assert episodes.returns.tolist() == [3, 7] and episodes.lengths.tolist() == [2, 2]
    assert ledger.open_length.tolist() == [0]


def test_only_a_masked_rollout_has_the_column():
    seen, actions = torch.zeros(2, 3), torch.zeros(4, 2)
    assert "valid" not in Rollout(4, 2, seen, actions).flat()
    assert Rollout(4, 2, seen, actions, masked=True).flat()["valid"].shape == (8,)
