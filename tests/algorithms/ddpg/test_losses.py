"""DDPG's losses on steps worked out by hand, and which networks their gradients reach."""

import pytest
import torch
from torch import nn

from lockstep.algorithms.ddpg.actions import DiscreteVectors
from lockstep.algorithms.ddpg.losses import ActorLoss, Batch, CriticLoss
from lockstep.algorithms.ddpg.networks import Sizes, build_networks
from lockstep.rl.replay import Column, Replay
from lockstep.rl.target_networks import target_of

VECTORS = DiscreteVectors("softmax", 2, stores_actions=False)


class Outputs(nn.Module):
    """An actor whose outputs are the same everywhere."""

    def __init__(self, *outputs):
        super().__init__()
        self.outputs = nn.Parameter(torch.tensor(outputs))

    def forward(self, observation):
        return self.outputs.expand(*observation.shape[:2], -1)


class Weighing(nn.Module):
    """Critics with the value weight x (first feature + vector . taste)."""

    def __init__(self, *weights, taste=(1.0, 0.0)):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights))
        self.taste = torch.tensor(taste)

    def forward(self, observation, vector):
        return self.weight[:, None, None] * (observation[..., 0] + (vector * self.taste).sum(-1))


def memory_of(observation, reward, ended, action=((1.0, 0.0),)):
    """One lane, one board, one agent: a row for each step."""
    columns = {"observation": Column((1, 1)), "action": Column((1, 2)), "reward": Column((1,)), "ended": Column()}
    columns["ended"] = Column((), torch.bool)
    memory = Replay(range(1), len(observation), 1, columns, 0, torch.device("cpu"))
    for row, (seen, paid, over) in enumerate(zip(observation, reward, ended, strict=True)):
        memory.write(
            torch.tensor([row]),
            observation=torch.tensor([[[float(seen)]]]),
            action=torch.tensor([action]),
            reward=torch.tensor([[float(paid)]]),
            ended=torch.tensor([over]),
        )
    return memory


def batch_of(memory, *places, share=None):
    return Batch(memory, torch.tensor(places), share or 1.0 / len(places))


def critic_loss(critic, target_critic, n_step=1, gamma=0.5):
    # The target actor puts 3/4 on the first action.
    return CriticLoss(critic, Outputs(torch.tensor(3.0).log().item(), 0.0), target_critic, VECTORS, gamma, n_step)


def test_the_target_is_the_reward_plus_the_discounted_value_of_the_next_step():
    memory = memory_of([10, 20, 30], [1, 2, 4], [False, False, False])
    target = critic_loss(Weighing(1.0), Weighing(1.0)).target(batch_of(memory, 0))
    assert target.tolist() == [[1 + 0.5 * (20 + 0.75)]]


def test_the_n_step_target_counts_n_rewards_before_the_value():
    memory = memory_of([10, 20, 30], [1, 2, 4], [False, False, False])
    target = critic_loss(Weighing(1.0), Weighing(1.0), n_step=2).target(batch_of(memory, 0))
    assert target.tolist() == [[1 + 0.5 * 2 + 0.25 * (30 + 0.75)]]


@pytest.mark.parametrize(("ended", "target"), [((True, False), 1.0), ((False, True), 2.0)])
def test_nothing_is_counted_beyond_the_end_of_an_episode(ended, target):
    memory = memory_of([10, 20, 30], [1, 2, 4], [*ended, False])
    assert critic_loss(Weighing(1.0), Weighing(1.0), n_step=2).target(batch_of(memory, 0)).tolist() == [[target]]


def test_the_target_uses_the_lower_target_critic_and_trains_both_critics():
    memory = memory_of([10, 20], [1, 2], [False, False])
    critic = Weighing(1.0, 2.0)
    loss, metrics = critic_loss(critic, Weighing(1.0, -1.0))(batch_of(memory, 0))
    target = 1 - 0.5 * 20.75
    # The critics' values are 1 x (10 + 1) and 2 x (10 + 1).
    torch.testing.assert_close(loss, torch.tensor(((11 - target) ** 2 + (22 - target) ** 2) / 2))
    torch.testing.assert_close(metrics["value"], torch.tensor(16.5))
    loss.backward()
    torch.testing.assert_close(critic.weight.grad, torch.tensor([(11 - target) * 11, (22 - target) * 11]))


def test_the_actors_gradient_favours_the_action_of_higher_value():
    memory = memory_of([0, 0], [0, 0], [False, False])
    actor = Outputs(0.0, 0.0)
    loss, _ = ActorLoss(actor, Weighing(2.0), VECTORS, entropy_coef=0.0)(batch_of(memory, 0))
    assert loss.item() == -1.0  # 2 x the probability 1/2 of the first action
    loss.backward()
    # d(2 p)/d output = 2 p (1 - p) = 1/2, with the loss's sign.
    torch.testing.assert_close(actor.outputs.grad, torch.tensor([-0.5, 0.5]))


def test_the_actor_is_trained_by_the_lower_critic():
    memory = memory_of([1, 1], [0, 0], [False, False])
    loss, _ = ActorLoss(Outputs(0.0, 0.0), Weighing(2.0, -4.0), VECTORS, entropy_coef=0.0)(batch_of(memory, 0))
    assert loss.item() == 6.0


def test_entropy_coef_rewards_entropy():
    memory = memory_of([0, 0], [0, 0], [False, False])
    loss, metrics = ActorLoss(Outputs(0.0, 0.0), Weighing(0.0), VECTORS, entropy_coef=0.1)(batch_of(memory, 0))
    torch.testing.assert_close(metrics["entropy"], torch.tensor(2.0).log())
    torch.testing.assert_close(loss.detach(), -0.1 * torch.tensor(2.0).log())


@pytest.mark.parametrize("stores_actions", [True, False], ids=["action", "vector"])
@pytest.mark.parametrize("values", ["actions", "vectors"])
@pytest.mark.parametrize("algo", ["ddpg", "bicnet", "maddpg"])
def test_each_loss_has_gradients_for_its_own_network_only(algo, values, stores_actions):
    sizes = Sizes(features=3, agents=2, actions=4, hidden=8, critics=2)
    networks = build_networks(algo, sizes, 1, values)
    actor, critic = networks.actor, networks.critic
    vectors = DiscreteVectors("softmax", 4, stores_actions=stores_actions)
    columns = {
        "observation": Column((2, 3)),
        "action": vectors.replay_column(2),
        "reward": Column((2,)),
        "ended": Column((), torch.bool),
    }
    memory = Replay(range(1), 4, 2, columns, 0, torch.device("cpu"))
    for row in range(4):
        memory.write(
            torch.tensor([row]),
            observation=torch.randn(2, 2, 3),
            action=vectors.to_replay(torch.rand(2, 2, 4), torch.randint(4, (2, 2))),
            reward=torch.randn(2, 2),
            ended=torch.zeros(2, dtype=torch.bool),
        )
    actor_loss = ActorLoss(actor, critic, vectors, 0.0)
    critic_loss = CriticLoss(critic, target_of(actor), target_of(critic), vectors, 0.9, 1)
    assert {id(p) for p in actor_loss.parameters()} == {id(p) for p in actor.parameters()}
    assert {id(p) for p in critic_loss.parameters()} == {id(p) for p in critic.parameters()}
    batch = batch_of(memory, 0, 3, share=0.25)
    for weight in critic.parameters():
        weight.grad = torch.full_like(weight, 7.0)
    actor_loss(batch)[0].backward()
    assert all(bool((weight.grad == 7.0).all()) for weight in critic.parameters())
    assert all(weight.grad is not None for weight in actor.parameters())
    for weight in actor.parameters():
        weight.grad = torch.full_like(weight, 5.0)
    critic_loss(batch)[0].backward()
    assert all(bool((weight.grad == 5.0).all()) for weight in actor.parameters())
    assert not any(bool((weight.grad == 7.0).all()) for weight in critic.parameters())


def test_gradients_of_uneven_parts_add_up_to_the_gradient_of_the_whole_batch():
    memory = memory_of([1, 2, 3, 4, 5], [1, -1, 2, 0, 3], [False, True, False, False, False])

    def gradient(parts):
        critic = Weighing(0.5, 1.5)
        for part in parts:
            critic_loss(critic, Weighing(1.0, 2.0))(batch_of(memory, *part, share=0.25))[0].backward()
        return critic.weight.grad

    whole = gradient([(0, 1, 2, 3)])
    torch.testing.assert_close(gradient([(0, 1, 2), (3,)]), whole)
