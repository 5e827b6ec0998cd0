"""Networks that suit any problem."""

import torch

from lockstep.rl.networks import MLPActorCritic
from lockstep.rl.problem import Continuous, Discrete


def perceptron(shape=(3,), actions=None, seed=1):
    return MLPActorCritic(shape, actions or Continuous(2), 8, 2, "tanh", -0.5, seed)


def test_continuous_actions_have_a_mean_each_and_a_deviation_that_no_observation_changes():
    outputs, value = perceptron()(torch.randn(5, 3))
    assert outputs.shape == (5, 4) and value.shape == (5,)
    assert bool((outputs[:, 2:] == -0.5).all()) and outputs[:, :2].unique().numel() == 10


def test_the_deviation_is_learned():
    network = perceptron()
    network(torch.randn(5, 3))[0].sum().backward()
    assert network.log_std.grad.tolist() == [5.0, 5.0]


def test_pictures_of_bytes_are_taken_as_they_are():
    outputs, value = perceptron((2, 4, 4), Discrete(3))(torch.zeros(5, 2, 4, 4, dtype=torch.uint8))
    assert outputs.shape == (5, 3) and value.shape == (5,)


def test_the_first_weights_depend_on_the_seed_alone():
    first, again, other = perceptron(), perceptron(), perceptron(seed=2)
    assert torch.equal(first.actor[0].weight, again.actor[0].weight)
    assert not torch.equal(first.actor[0].weight, other.actor[0].weight)
