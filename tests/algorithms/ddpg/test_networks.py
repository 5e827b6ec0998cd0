"""Which agents each kind of network depends on, and which agents its gradients reach."""

import pytest
import torch

from lockstep.algorithms.ddpg.networks import Sizes, build_networks

SIZES = Sizes(features=5, agents=3, actions=4, hidden=8, layers=2, critics=2)
ALGOS = ["ddpg", "bicnet", "maddpg"]
VALUED = ["actions", "vectors"]


def depends_on(outputs, inputs):
    """For each agent, whether the output for agent 0 depends on its input."""
    (gradient,) = torch.autograd.grad(outputs, inputs)
    return [bool(gradient[:, agent].abs().sum() > 0) for agent in range(3)]


@pytest.mark.parametrize("values", VALUED)
@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_every_network_has_an_output_for_every_agent(algo, layers, values):
    networks = build_networks(algo, Sizes(5, 3, 4, hidden=8, layers=layers, critics=2), 1, values)
    observation = torch.randn(7, 3, 5)
    assert networks.actor(observation).shape == (7, 3, 4)
    assert networks.critic(observation, torch.rand(7, 3, 4)).shape == (2, 7, 3)


@pytest.mark.parametrize("algo", ALGOS)
def test_only_communicating_actors_depend_on_the_other_agents(algo):
    actor = build_networks(algo, SIZES, seed=1).actor
    observation = torch.randn(6, 3, 5, requires_grad=True)
    knows = depends_on(actor(observation)[:, 0].sum(), observation)
    assert knows == ([True, True, True] if algo == "bicnet" else [True, False, False])


@pytest.mark.parametrize("values", VALUED)
@pytest.mark.parametrize("algo", ALGOS)
def test_which_agents_a_critic_depends_on_and_trains(algo, values):
    critic = build_networks(algo, SIZES, 1, values).critic
    observation = torch.randn(6, 3, 5, requires_grad=True)
    vector = torch.rand(6, 3, 4, requires_grad=True)
    knows = depends_on(critic(observation, vector)[:, :, 0].sum(), observation)
    assert knows == ([True, True, True] if algo in ("bicnet", "maddpg") else [True, False, False])
    # A central critic sees the others' vectors, but each agent is trained by its own value only.
    trained = depends_on(critic(observation, vector)[:, :, 0].sum(), vector)
    together = algo == "bicnet" and values == "vectors"
    assert trained == ([True, True, True] if together else [True, False, False])


@pytest.mark.parametrize("values", VALUED)
def test_a_central_critic_sees_the_agents_in_cyclic_order_from_its_own(values):
    critic = build_networks("maddpg", SIZES, 1, values).critic
    observation, vector = torch.randn(6, 3, 5), torch.rand(6, 3, 4)
    before = critic(observation, vector)
    # If all agents move on by one place, each has the same neighbours as before.
    moved = critic(observation.roll(1, 1), vector.roll(1, 1))
    torch.testing.assert_close(moved, before.roll(1, 2))


@pytest.mark.parametrize("algo", ["ddpg", "bicnet"])
def test_the_value_of_probabilities_is_the_expected_value_of_the_actions(algo):
    critic = build_networks(algo, SIZES, seed=1).critic
    observation = torch.randn(2, 3, 5)
    single = torch.stack([critic(observation, torch.eye(4)[action].expand(2, 3, 4)) for action in range(4)], -1)
    probabilities = torch.softmax(torch.randn(2, 3, 4), -1)
    torch.testing.assert_close(critic(observation, probabilities), (single * probabilities).sum(-1))


def test_the_seed_determines_the_weights_and_the_first_policy_is_nearly_uniform():
    one, again, other = (build_networks("bicnet", SIZES, seed).actor for seed in (1, 1, 2))
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    probabilities = torch.softmax(one(torch.randn(9, 3, 5)), -1).detach()
    assert float((probabilities - 0.25).abs().max()) < 0.02
