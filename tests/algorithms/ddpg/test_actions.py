"""ActionVectors and probabilities worked out by hand."""

import pytest
import torch

from lockstep.algorithms.ddpg.actions import ActionVectors


def test_softmax_vectors_are_probabilities_and_tanh_vectors_are_moved_into_their_range():
    outputs = torch.tensor([2.0, 2.0]).log().repeat(2)
    assert ActionVectors("softmax", 4, executed=False).of(outputs).tolist() == [0.25] * 4
    tanh = ActionVectors("tanh", 2, executed=False)
    assert tanh.of(torch.tensor([0.0, 100.0])).tolist() == [0.0, 1.0]
    # 0 and 1 in [-1, 1] are half and the whole of the way: weights 1/2 and 1.
    torch.testing.assert_close(tanh.log_probabilities(torch.tensor([0.0, 1.0])).exp(), torch.tensor([1 / 3, 2 / 3]))


def test_a_vector_that_explores_need_not_add_up_to_one():
    vectors = ActionVectors("softmax", 2, executed=False)
    wild = vectors.exploring(torch.tensor([0.9, 0.3]))
    torch.testing.assert_close(wild, torch.tensor([0.9, 0.3]))
    torch.testing.assert_close(vectors.log_probabilities(wild).exp(), torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(
        ActionVectors("tanh", 2, executed=False).exploring(torch.tensor([0.9, 0.25]))[1].item(), -0.5
    )


@pytest.mark.parametrize(("uniform", "action"), [(0.0, 0), (0.24, 0), (0.26, 1), (0.999, 1)])
def test_actions_are_drawn_by_their_probabilities(uniform, action):
    vectors = ActionVectors("softmax", 2, executed=False)
    assert vectors.choose(torch.tensor([[0.1, 0.3]]), torch.tensor([uniform])).tolist() == [action]


def test_a_vector_without_any_weight_still_chooses():
    assert ActionVectors("tanh", 2, executed=False).choose(torch.tensor([-1.0, -1.0]), torch.tensor(0.6)).item() == 1


def test_what_was_done_is_remembered_in_a_byte_and_recalled_as_a_vector():
    vectors = ActionVectors("softmax", 4, executed=True)
    column = vectors.column(agents=3)
    assert (column.shape, column.dtype) == ((3,), torch.uint8)
    kept = vectors.remembered(torch.rand(1, 2, 4), torch.tensor([[3, 0]])).to(torch.uint8)
    assert vectors.recalled(kept).tolist() == [[[0, 0, 0, 1], [1, 0, 0, 0]]]


def test_else_the_vector_itself_is_remembered():
    vectors = ActionVectors("softmax", 4, executed=False)
    assert vectors.column(agents=3).shape == (3, 4)
    vector = torch.rand(1, 2, 4)
    assert vectors.recalled(vectors.remembered(vector, torch.tensor([[3, 0]]))) is vector


def test_a_critic_of_what_was_done_is_shown_probabilities():
    outputs = torch.tensor([0.0, 100.0])
    torch.testing.assert_close(ActionVectors("tanh", 2, executed=True).judged(outputs), torch.tensor([1 / 3, 2 / 3]))
    assert ActionVectors("tanh", 2, executed=False).judged(outputs).tolist() == [0.0, 1.0]
