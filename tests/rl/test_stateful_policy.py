"""What a policy remembers: step by step, per environment, and over a save."""

import pytest
import torch
from torch import nn

from lockstep.rl.recurrent_policy import LSTMPolicy
from lockstep.rl.stateful_policy import Mind

CPU = torch.device("cpu")


class Counter(nn.Module):
    """Counts the steps of each environment: its value is the count, its logits too."""

    def first_memory(self, count, device):
        return (torch.zeros(count, 1, device=device),)

    def forward(self, observation, memory):
        count = memory[0] + observation
        return count, count.squeeze(-1), (count,)


def test_a_mind_counts_on_until_it_forgets():
    mind = Mind(Counter(), 3, CPU)
    one = torch.ones(3, 1)
    assert mind.act(one)[1].tolist() == [1, 1, 1]
    assert mind.act(one)[1].tolist() == [2, 2, 2]
    mind.forget(torch.tensor([False, True, False]))
    assert mind.act(one)[1].tolist() == [3, 1, 3]
    mind.forget()
    assert mind.act(one)[1].tolist() == [1, 1, 1]


def test_a_look_is_not_remembered():
    mind = Mind(Counter(), 1, CPU)
    one = torch.ones(1, 1)
    mind.act(one)
    assert mind.value(one).tolist() == mind.value(one).tolist() == [2]


def test_what_is_remembered_can_be_saved_and_taken_up():
    mind, other = Mind(Counter(), 2, CPU), Mind(Counter(), 2, CPU)
    mind.act(torch.tensor([[5.0], [7.0]]))
    assert {name: value.tolist() for name, value in mind.state().items()} == {"memory.0": [[5.0], [7.0]]}
    other.load({"memory.0": mind.state()["memory.0"], "env.something": torch.zeros(2)})
    assert other.act(torch.ones(2, 1))[1].tolist() == [6, 8]


def test_a_network_without_a_memory_is_only_called():
    mind = Mind(nn.ModuleList(), 2, CPU)
    mind._network = lambda observation: (observation, observation.sum(-1))
    assert mind.act(torch.ones(2, 3))[1].tolist() == mind.value(torch.ones(2, 3)).tolist() == [3, 3]
    assert mind.state() == {} and mind.memory == ()
    mind.forget(torch.tensor([True, False]))


@pytest.mark.parametrize("separate", [False, True])
def test_acting_step_by_step_is_the_sequence(separate):
    torch.manual_seed(0)
    policy = LSTMPolicy(6, 3, 5, separate=separate, forecasts=2)
    for parameter in policy.parameters():
        nn.init.normal_(parameter, std=0.5)
    observation = torch.randn(8, 2, 6)
    keep = torch.ones(8, 2)
    keep[3, 1] = keep[5, 0] = 0.0
    mind = Mind(policy, 2, CPU)
    mind.act(torch.randn(2, 6))
    before = tuple(part.clone() for part in mind.memory)
    logits, values, forecasts = policy.sequence(observation, before, keep)
    for t in range(8):
        mind.forget(keep[t] == 0.0)
        now = mind.act(observation[t])
        torch.testing.assert_close(now[0], logits[t])
        torch.testing.assert_close(now[1], values[t])
    assert forecasts.shape == (8, 2, 2)
