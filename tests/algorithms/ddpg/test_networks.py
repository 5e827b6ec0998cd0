"""What each kind of network lets an agent know of the others, and whom its value teaches."""

import pytest
import torch

from lockstep.algorithms.ddpg.networks import Sizes, build_networks

SIZES = Sizes(features=5, agents=3, actions=4, hidden=8, layers=2, critics=2)
ALGOS = ["ddpg", "bicnet", "maddpg"]
VALUED = ["actions", "vectors"]


def touched(outputs, inputs):
    """Which agents' inputs the answer for agent 0 depends on."""
    (gradient,) = torch.autograd.grad(outputs, inputs)
    return [bool(gradient[:, agent].abs().sum() > 0) for agent in range(3)]


@pytest.mark.parametrize("values", VALUED)
@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_every_network_answers_for_every_agent(algo, layers, values):
    networks = build_networks(algo, Sizes(5, 3, 4, hidden=8, layers=layers, critics=2), 1, values)
    observation = torch.randn(7, 3, 5)
    assert networks.actor(observation).shape == (7, 3, 4)
    assert networks.critic(observation, torch.rand(7, 3, 4)).shape == (2, 7, 3)


@pytest.mark.parametrize("algo", ALGOS)
def test_only_agents_that_communicate_know_of_each_other_when_they_act(algo):
    actor = build_networks(algo, SIZES, seed=1).actor
    observation = torch.randn(6, 3, 5, requires_grad=True)
    knows = touched(actor(observation)[:, 0].sum(), observation)
    assert knows == ([True, True, True] if algo == "bicnet" else [True, False, False])


@pytest.mark.parametrize("values", VALUED)
@pytest.mark.parametrize("algo", ALGOS)
def test_what_a_critic_knows(algo, values):
    critic = build_networks(algo, SIZES, 1, values).critic
    observation = torch.randn(6, 3, 5, requires_grad=True)
    vector = torch.rand(6, 3, 4, requires_grad=True)
    knows = touched(critic(observation, vector)[:, :, 0].sum(), observation)
    assert knows == ([True, True, True] if algo in ("bicnet", "maddpg") else [True, False, False])
    # A central critic knows what the others do, but an agent is only taught by its own value.
    taught = touched(critic(observation, vector)[:, :, 0].sum(), vector)
    together = algo == "bicnet" and values == "vectors"
    assert taught == ([True, True, True] if together else [True, False, False])


@pytest.mark.parametrize("values", VALUED)
def test_a_central_critic_sees_the_others_in_turn_with_the_agent_itself_first(values):
    critic = build_networks("maddpg", SIZES, 1, values).critic
    observation, vector = torch.randn(6, 3, 5), torch.rand(6, 3, 4)
    before = critic(observation, vector)
    # With all agents one place further on, everybody has the same neighbours as before.
    moved = critic(observation.roll(1, 1), vector.roll(1, 1))
    torch.testing.assert_close(moved, before.roll(1, 2))


@pytest.mark.parametrize("algo", ["ddpg", "bicnet"])
def test_a_vector_of_probabilities_is_worth_what_may_be_expected(algo):
    critic = build_networks(algo, SIZES, seed=1).critic
    observation = torch.randn(2, 3, 5)
    single = torch.stack([critic(observation, torch.eye(4)[action].expand(2, 3, 4)) for action in range(4)], -1)
    probabilities = torch.softmax(torch.randn(2, 3, 4), -1)
    torch.testing.assert_close(critic(observation, probabilities), (single * probabilities).sum(-1))


def test_the_seed_decides_the_weights_and_the_first_actions_are_nearly_alike():
    one, again, other = (build_networks("bicnet", SIZES, seed).actor for seed in (1, 1, 2))
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    probabilities = torch.softmax(one(torch.randn(9, 3, 5)), -1).detach()
    assert float((probabilities - 0.25).abs().max()) < 0.02
