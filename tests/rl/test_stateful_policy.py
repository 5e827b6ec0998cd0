"""What a policy remembers: step by step, per environment, and over a save."""

import pytest
import torch
from torch import nn

from lockstep.rl.recurrent_policy import LSTMPolicy
from lockstep.rl.stateful_policy import StatefulPolicy

CPU = torch.device("cpu")


class Counter(nn.Module):
    """Counts the steps of each environment: its value is the count, its logits too."""

    def first_memory(self, count, device):
        return (torch.zeros(count, 1, device=device),)

    def forward(self, observation, memory):
        count = memory[0] + observation
        return count, count.squeeze(-1), (count,)


def test_a_mind_counts_on_until_it_forgets():
    policy = StatefulPolicy(Counter(), 3, CPU)
    one = torch.ones(3, 1)
    assert policy.act(one)[1].tolist() == [1, 1, 1]
    assert policy.act(one)[1].tolist() == [2, 2, 2]
    policy.forget(torch.tensor([False, True, False]))
    assert policy.act(one)[1].tolist() == [3, 1, 3]
    policy.forget()
    assert policy.act(one)[1].tolist() == [1, 1, 1]


def test_a_look_is_not_remembered():
    policy = StatefulPolicy(Counter(), 1, CPU)
    one = torch.ones(1, 1)
    policy.act(one)
    assert policy.value(one).tolist() == policy.value(one).tolist() == [2]


def test_what_is_remembered_can_be_saved_and_taken_up():
    policy, other = StatefulPolicy(Counter(), 2, CPU), StatefulPolicy(Counter(), 2, CPU)
    policy.act(torch.tensor([[5.0], [7.0]]))
    assert {name: value.tolist() for name, value in policy.state().items()} == {"memory.0": [[5.0], [7.0]]}
    other.load({"memory.0": policy.state()["memory.0"], "env.something": torch.zeros(2)})
    assert other.act(torch.ones(2, 1))[1].tolist() == [6, 8]


def test_a_network_without_a_memory_is_only_called():
    policy = StatefulPolicy(nn.ModuleList(), 2, CPU)
    policy._network = lambda observation: (observation, observation.sum(-1))
    assert policy.act(torch.ones(2, 3))[1].tolist() == policy.value(torch.ones(2, 3)).tolist() == [3, 3]
    assert policy.state() == {} and policy.memory == ()
    policy.forget(torch.tensor([True, False]))


@pytest.mark.parametrize("separate", [False, True])
def test_acting_step_by_step_is_the_sequence(separate):
    torch.manual_seed(0)
    network = LSTMPolicy(6, 3, 5, separate=separate, forecasts=2)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    observation = torch.randn(8, 2, 6)
    keep = torch.ones(8, 2)
    keep[3, 1] = keep[5, 0] = 0.0
    policy = StatefulPolicy(network, 2, CPU)
    policy.act(torch.randn(2, 6))
    before = tuple(part.clone() for part in policy.memory)
    logits, values, forecasts = network.sequence(observation, before, keep)
    for t in range(8):
        policy.forget(keep[t] == 0.0)
        now = policy.act(observation[t])
        torch.testing.assert_close(now[0], logits[t])
        torch.testing.assert_close(now[1], values[t])
    assert forecasts.shape == (8, 2, 2)
