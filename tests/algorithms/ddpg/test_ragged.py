"""Agents that leave at different times or are cut off: targets and losses worked out by hand."""

import pytest
import torch
from torch import nn

from lockstep.algorithms.ddpg.actions import DiscreteVectors
from lockstep.algorithms.ddpg.collector import ragged_columns
from lockstep.algorithms.ddpg.losses import ActorLoss, Batch, CriticLoss
from lockstep.rl.replay import Column, Replay

VECTORS = DiscreteVectors("softmax", 2, stores_actions=False)


class Indifferent(nn.Module):
    """An actor without an opinion."""

    def __init__(self):
        super().__init__()
        self.outputs = nn.Parameter(torch.zeros(2))

    def forward(self, observation):
        return self.outputs.expand(*observation.shape[:2], -1)


class Seeing(nn.Module):
    """A critic whose value is what the agent sees, plus half the vector's first component times a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.0))

    def forward(self, observation, vector):
        return (observation[..., 0] + self.weight * vector[..., 0])[None]


def memory_of(*steps):
    """One lane, one environment, two agents; the columns of a step are those of EPISODE."""
    seen = Column((2, 1))
    columns = {"observation": seen, "action": Column((2, 2)), "reward": Column((2,))} | ragged_columns(seen, 2)
    memory = Replay(range(1), len(steps), 1, columns, 0, torch.device("cpu"))
    for row, (see, reward, terminated, acted, cut, final) in enumerate(steps):
        memory.write(
            torch.tensor([row]),
            observation=torch.tensor(see, dtype=torch.float32).view(1, 2, 1),
            action=torch.tensor([[[1.0, 0.0]] * 2]),
            reward=torch.tensor([reward], dtype=torch.float32),
            terminated=torch.tensor([terminated], dtype=torch.bool),
            acted=torch.tensor([acted], dtype=torch.bool),
            cut=torch.tensor([cut], dtype=torch.bool),
            final=torch.tensor(final, dtype=torch.float32).view(1, 2, 1),
        )
    return memory


def batch_of(memory, *places, count):
    return Batch(memory, torch.tensor(places), torch.tensor(1.0 / count), ragged=True)


def loss(n_step=2):
    return CriticLoss(Seeing(), Indifferent(), Seeing(), VECTORS, 0.5, n_step)


EPISODE = (
    # see      reward   terminated acted    cut    final
    ((10, 20), (1, 2), (0, 0), (1, 1), False, (0, 0)),
    ((11, 21), (3, 4), (1, 0), (1, 1), False, (0, 0)),
    ((0, 22), (0, 6), (1, 0), (0, 1), True, (0, 80)),
    ((40, 50), (7, 8), (0, 0), (1, 1), False, (0, 0)),
    ((41, 51), (9, 9), (0, 0), (1, 1), False, (0, 0)),
)


def test_targets_stop_where_an_agent_ends_and_use_the_last_observation_where_it_is_cut_off():
    target = loss().target(batch_of(memory_of(*EPISODE), 0, 1, 2, count=1))
    # Step 0: 1 + 0.5 x 3, as the first agent ends in step 1; 2 + 0.5 x (4 + 0.5 x 22).
    assert target[0].tolist() == [2.5, 9.5]
    # Step 1: 3; 4 + 0.5 x (6 + 0.5 x 80): the episode is cut off in step 2.
    assert target[1].tolist() == [3.0, 27.0]
    # Step 2: 6 + 0.5 x 80, although the next episode has begun in step 3.
    assert target[2, 1] == 46.0


def test_an_agent_that_goes_on_past_anothers_cut_has_a_shorter_return():
    steps = (((1, 2), (1, 1), (0, 0), (1, 1), True, (30, 70)), *EPISODE)
    # Only the first agent is cut off; the second one's return ends with 0.5 x 70 as well, instead of two steps later.
    assert loss().target(batch_of(memory_of(*steps), 0, count=1))[0].tolist() == [16.0, 36.0]


def test_a_common_end_without_cuts_gives_the_targets_of_ordinary_teams():
    over = [((1, 1), (1, 1), (0, 0), (1, 1), False, (0, 0)), ((2, 2), (3, 3), (1, 1), (1, 1), True, (9, 9))]
    target = loss().target(batch_of(memory_of(*over, *over), 0, count=1))
    assert target[0].tolist() == [2.5, 2.5]


def test_agents_that_took_no_part_have_no_influence_on_the_losses():
    module = loss(n_step=1)
    # Step 2: the second agent sees 22, and its target is 6 + 0.5 x 80; the first one has left.
    found, metrics = module(batch_of(memory_of(*EPISODE), 2, count=1))
    assert found.item() == pytest.approx((46 - 22) ** 2) and float(metrics["value"]) == 22
    actor = ActorLoss(Indifferent(), Seeing(), VECTORS, entropy_coef=1.0)
    found, metrics = actor(batch_of(memory_of(*EPISODE), 2, count=1))
    assert float(metrics["entropy"]) == pytest.approx(0.6931, abs=1e-4), "of one agent"
    assert found.item() == pytest.approx(-22 - 0.6931, abs=1e-4)
