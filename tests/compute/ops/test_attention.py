"""Windowed attention: the mask, and that a sequence gives the same as its steps one by one."""

import pytest
import torch

from lockstep.compute.ops.attention import AttentionMask, WindowedAttention, slide

WINDOW, SIZE, BATCH = 4, 8, 2


def seen_by(sight, sequence):
    """For each step the steps it attends to, the first step of the sequence being 0."""
    return [[int(place) - (WINDOW - 1) for place in row.nonzero()] for row in sight.seen[sequence, 0]]


def test_a_step_attends_to_itself_and_three_before_it_within_its_episode():
    keep = torch.ones(5, 2)
    keep[2, 1] = 0.0
    sight = AttentionMask(torch.tensor([2.0, 3.0]), keep, WINDOW)
    # Two earlier steps are known to the first sequence.
    assert seen_by(sight, 0) == [[-2, -1, 0], [-2, -1, 0, 1], [-1, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4]]
    # In the second an episode begins at step 2.
    assert seen_by(sight, 1) == [[-3, -2, -1, 0], [-2, -1, 0, 1], [2], [2, 3], [2, 3, 4]]
    assert sight.age.tolist() == [3.0, 3.0]


def test_the_first_step_of_an_episode_attends_only_to_itself():
    sight = AttentionMask(torch.zeros(1), torch.ones(1, 1), WINDOW)
    assert seen_by(sight, 0) == [[0]]
    assert sight.age.tolist() == [1.0]


@pytest.fixture
def attention():
    torch.manual_seed(0)
    return WindowedAttention(SIZE, heads=2)


def test_a_sequence_gives_the_same_as_its_steps_one_by_one(attention):
    features = torch.randn(9, BATCH, SIZE)
    keep = torch.ones(9, BATCH)
    keep[5, 0] = 0.0
    earlier, age = torch.randn(BATCH, WINDOW - 1, SIZE), torch.tensor([1.0, 3.0])
    whole = attention(features, earlier, AttentionMask(age, keep, WINDOW))
    for t in range(9):
        age = age * keep[t]
        sight = AttentionMask(age, torch.ones(1, BATCH), WINDOW)
        torch.testing.assert_close(attention(features[t : t + 1], earlier, sight)[0], whole[t])
        earlier, age = slide(earlier, features[t : t + 1]), sight.age


def test_steps_outside_the_window_change_nothing(attention):
    features, earlier = torch.randn(6, BATCH, SIZE), torch.randn(BATCH, WINDOW - 1, SIZE)
    sight = AttentionMask(torch.zeros(BATCH), torch.ones(6, BATCH), WINDOW)
    wanted = attention(features, earlier, sight)
    changed = features.clone()
    changed[0] += 1.0
    found = attention(changed, earlier + 1.0, sight)
    assert torch.equal(found[4:], wanted[4:])
    assert not torch.equal(found[3], wanted[3])


def test_sliding_keeps_the_last_steps():
    earlier = torch.tensor([[[1.0], [2.0], [3.0]]])
    assert slide(earlier, torch.tensor([[[4.0]], [[5.0]]])).flatten().tolist() == [3.0, 4.0, 5.0]
