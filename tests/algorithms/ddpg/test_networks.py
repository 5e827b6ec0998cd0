"""What each kind of network lets an agent know of the others, and whom its value teaches."""

import pytest
import torch

from lockstep.algorithms.ddpg.networks import Sizes, build_networks

SIZES = Sizes(features=5, agents=3, actions=4, hidden=8, layers=2, critics=2)
ALGOS = ["ddpg", "bicnet", "maddpg"]
QUESTIONS = ["actions", "vectors"]


def touched(outputs, inputs):
    """Which agents' inputs the answer for agent 0 depends on."""
    (gradient,) = torch.autograd.grad(outputs, inputs)
    return [bool(gradient[:, agent].abs().sum() > 0) for agent in range(3)]


@pytest.mark.parametrize("asked_for", QUESTIONS)
@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_every_network_answers_for_every_agent(algo, layers, asked_for):
    actor, critic = build_networks(algo, Sizes(5, 3, 4, hidden=8, layers=layers, critics=2), 1, asked_for)
    observation = torch.randn(7, 3, 5)
    assert actor(observation).shape == (7, 3, 4)
    assert critic(observation, torch.rand(7, 3, 4)).shape == (2, 7, 3)


@pytest.mark.parametrize("algo", ALGOS)
def test_only_agents_that_talk_know_of_each_other_when_they_act(algo):
    actor, _ = build_networks(algo, SIZES, seed=1)
    observation = torch.randn(6, 3, 5, requires_grad=True)
    knows = touched(actor(observation)[:, 0].sum(), observation)
    assert knows == ([True, True, True] if algo == "bicnet" else [True, False, False])


@pytest.mark.parametrize("asked_for", QUESTIONS)
@pytest.mark.parametrize("algo", ALGOS)
def test_what_a_critic_knows(algo, asked_for):
    _, critic = build_networks(algo, SIZES, 1, asked_for)
    observation = torch.randn(6, 3, 5, requires_grad=True)
    vector = torch.rand(6, 3, 4, requires_grad=True)
    knows = touched(critic(observation, vector)[:, :, 0].sum(), observation)
    assert knows == ([True, True, True] if algo in ("bicnet", "maddpg") else [True, False, False])
    # A central critic knows what the others do, but an agent is only taught by its own value.
    taught = touched(critic(observation, vector)[:, :, 0].sum(), vector)
    together = algo == "bicnet" and asked_for == "vectors"
    assert taught == ([True, True, True] if together else [True, False, False])


@pytest.mark.parametrize("asked_for", QUESTIONS)
def test_a_central_critic_sees_the_others_in_turn_with_the_agent_itself_first(asked_for):
    _, critic = build_networks("maddpg", SIZES, 1, asked_for)
    observation, vector = torch.randn(6, 3, 5), torch.rand(6, 3, 4)
    values = critic(observation, vector)
    # With all agents one place further on, everybody has the same neighbours as before.
    moved = critic(observation.roll(1, 1), vector.roll(1, 1))
    torch.testing.assert_close(moved, values.roll(1, 2))


@pytest.mark.parametrize("algo", ["ddpg", "bicnet"])
def test_a_vector_of_chances_is_worth_what_may_be_expected(algo):
    _, critic = build_networks(algo, SIZES, seed=1)
    observation = torch.randn(2, 3, 5)
    single = torch.stack([critic(observation, torch.eye(4)[action].expand(2, 3, 4)) for action in range(4)], -1)
    chances = torch.softmax(torch.randn(2, 3, 4), -1)
    torch.testing.assert_close(critic(observation, chances), (single * chances).sum(-1))


def test_the_seed_decides_the_weights_and_the_first_actions_are_nearly_alike():
    one, again, other = (build_networks("bicnet", SIZES, seed)[0] for seed in (1, 1, 2))
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    chances = torch.softmax(one(torch.randn(9, 3, 5)), -1).detach()
    assert float((chances - 0.25).abs().max()) < 0.02
