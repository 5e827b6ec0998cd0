"""Normalisers: their moments by hand, and what they leave alone."""

import torch

from lockstep.rl.normalisers import DiscountedReturns, ObservationNormaliser, RewardScale, scaled
from lockstep.rl.problem import Part

PARTS = (Part("speed", (2,)), Part("view", (1, 2, 2), "image"), Part("height", (1,)), Part("allowed", (2,), "mask"))


def test_observations_are_normalised_and_clipped():
    normaliser = ObservationNormaliser((Part("observation", (2,)),))
    seen = torch.tensor([[1.0, -500.0]])
    assert normaliser(seen).tolist() == [[1.0, -10.0]], "before the first update they only are clipped"
    # (0, 4): mean 2, variance 4. (7, 7): no variance.
    normaliser.update(normaliser.sums(torch.tensor([[[0.0, 7.0]], [[4.0, 7.0]]])))
    torch.testing.assert_close(normaliser(torch.tensor([[6.0, 7.0]])), torch.tensor([[2.0, 0.0]]))


def test_images_and_masks_stay_as_they_are():
    normaliser = ObservationNormaliser(PARTS)
    row = torch.arange(9.0)[None]
    assert len(normaliser) == 3 and normaliser.vectors(row).tolist() == [[0.0, 1.0, 6.0]]
    normaliser.update(normaliser.sums(torch.stack((row, row + 2))))
    # The means are 1, 2 and 7, all deviations 1.
    expected = torch.tensor([[-1.0, -1.0, 2.0, 3.0, 4.0, 5.0, -1.0, 7.0, 8.0]])
    torch.testing.assert_close(normaliser.within(row), expected)


def test_moments_are_changed_in_place_and_saved_with_the_weights():
    normaliser = ObservationNormaliser((Part("observation", (1,)),))
    place = normaliser.mean.data_ptr()
    normaliser.update(normaliser.sums(torch.tensor([[[1.0]], [[3.0]]])))
    assert normaliser.mean.data_ptr() == place
    assert {name: value.tolist() for name, value in normaliser.state_dict().items()} == {
        "mean": [2.0],
        "variance": [1.0],
        "count": 2.0,
    }


def test_discounted_returns_run_through_an_episode_and_start_anew_after_it():
    returns = DiscountedReturns(2, 0.5, torch.device("cpu"))
    returns.advance(torch.tensor([1.0, 2.0]), torch.tensor([False, True]))
    returns.advance(torch.tensor([1.0, 2.0]), torch.tensor([False, False]))
    assert returns.value.tolist() == [1.5, 2.0]
    # The values 1, 2, 1.5 and 2.
    assert returns.sums.tolist() == [[6.5, 1 + 4 + 2.25 + 4, 4.0]]


def test_rewards_are_divided_by_the_deviation_of_the_returns_and_clipped():
    scale = RewardScale(torch.device("cpu"))
    # The returns 1 and 5: mean 3, variance 4.
    scale.update(torch.tensor([6.0, 26.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(scaled(torch.tensor([3.0, -99.0]), scale.factor), torch.tensor([1.5, -10.0]))
    again = RewardScale(torch.device("cpu"))
    again.load(scale.state())
    for either in (scale, again):
        either.update(torch.tensor([0.1, 0.3, 2.0], dtype=torch.float64))
    assert again.state() == scale.state() and torch.equal(again.factor, scale.factor)
