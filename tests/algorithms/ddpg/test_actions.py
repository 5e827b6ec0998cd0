"""Action vectors and probabilities, with numbers worked out by hand."""

import pytest
import torch

from lockstep.algorithms.ddpg.actions import ContinuousVectors, DiscreteVectors


def test_softmax_vectors_are_probabilities_and_tanh_vectors_are_rescaled():
    outputs = torch.tensor([2.0, 2.0]).log().repeat(2)
    assert DiscreteVectors("softmax", 4, stores_actions=False).activate(outputs).tolist() == [0.25] * 4
    tanh = DiscreteVectors("tanh", 2, stores_actions=False)
    assert tanh.activate(torch.tensor([0.0, 100.0])).tolist() == [0.0, 1.0]
    # 0 and 1 rescaled from [-1, 1] to [0, 1] are the weights 1/2 and 1.
    torch.testing.assert_close(tanh.log_probabilities(torch.tensor([0.0, 1.0])).exp(), torch.tensor([1 / 3, 2 / 3]))


def test_exploring_vectors_need_not_sum_to_one():
    vectors = DiscreteVectors("softmax", 2, stores_actions=False)
    random = vectors.explore(torch.tensor([0.9, 0.3]))
    torch.testing.assert_close(random, torch.tensor([0.9, 0.3]))
    torch.testing.assert_close(vectors.log_probabilities(random).exp(), torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(
        DiscreteVectors("tanh", 2, stores_actions=False).explore(torch.tensor([0.9, 0.25]))[1].item(), -0.5
    )


@pytest.mark.parametrize(("uniform", "action"), [(0.0, 0), (0.24, 0), (0.26, 1), (0.999, 1)])
def test_actions_are_sampled_by_their_probabilities(uniform, action):
    vectors = DiscreteVectors("softmax", 2, stores_actions=False)
    assert vectors.sample(torch.tensor([[0.1, 0.3]]), torch.tensor([uniform])).tolist() == [action]


def test_a_vector_of_zero_weights_is_sampled_uniformly():
    assert (
        DiscreteVectors("tanh", 2, stores_actions=False).sample(torch.tensor([-1.0, -1.0]), torch.tensor(0.6)).item()
        == 1
    )


def test_stored_actions_take_a_byte_and_are_read_as_one_hot_vectors():
    vectors = DiscreteVectors("softmax", 4, stores_actions=True)
    column = vectors.replay_column(agents=3)
    assert (column.shape, column.dtype) == ((3,), torch.uint8)
    stored = vectors.to_replay(torch.rand(1, 2, 4), torch.tensor([[3, 0]])).to(torch.uint8)
    assert vectors.from_replay(stored).tolist() == [[[0, 0, 0, 1], [1, 0, 0, 0]]]


def test_stored_vectors_are_read_unchanged():
    vectors = DiscreteVectors("softmax", 4, stores_actions=False)
    assert vectors.replay_column(agents=3).shape == (3, 4)
    vector = torch.rand(1, 2, 4)
    assert vectors.from_replay(vectors.to_replay(vector, torch.tensor([[3, 0]]))) is vector


def test_a_critic_trained_on_actions_gets_probabilities_of_the_actor():
    outputs = torch.tensor([0.0, 100.0])
    torch.testing.assert_close(
        DiscreteVectors("tanh", 2, stores_actions=True).critic_input(outputs), torch.tensor([1 / 3, 2 / 3])
    )
    assert DiscreteVectors("tanh", 2, stores_actions=False).critic_input(outputs).tolist() == [0.0, 1.0]


def test_continuous_vectors_are_the_actions_and_noise_stays_within_the_bounds():
    vectors = ContinuousVectors(2, deviation=0.5)
    torch.testing.assert_close(vectors.activate(torch.tensor([0.0, 100.0])), torch.tensor([0.0, 1.0]))
    assert vectors.sample(torch.tensor([0.25, 1.0]), torch.tensor([-1.0, 2.0])).tolist() == [-0.25, 1.0]
    assert vectors.explore(torch.tensor([0.0, 0.75])).tolist() == [-1.0, 0.5]


def test_the_replay_buffer_keeps_a_continuous_action_with_its_noise():
    vectors = ContinuousVectors(2, deviation=0.5)
    assert vectors.replay_column(agents=3).shape == (3, 2)
    taken = torch.tensor([[[0.5, -0.5]]])
    assert vectors.from_replay(vectors.to_replay(torch.zeros(1, 1, 2), taken)) is taken


@pytest.mark.parametrize("agents", [0, 3])
def test_a_player_adds_the_noise_of_training_to_continuous_actions(agents):
    family = ContinuousVectors(2, deviation=0.1).family(agents)
    noise = family.noise(1, torch.arange(4), torch.tensor([7]))
    assert noise.shape == ((1, 4, 3, 2) if agents else (1, 4, 2))
    answer = torch.zeros_like(noise)
    assert family.mode(answer) is answer
    torch.testing.assert_close(family.of(answer).draw(noise), 0.1 * noise)
