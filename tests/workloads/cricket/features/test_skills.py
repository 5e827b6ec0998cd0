"""The additive model: it finds planted effects, shrinks rare members, and separates causes."""

import math

import torch

from lockstep.workloads.cricket.features.skills import CLASSES, Effect, fit_effects


def draw(log_odds, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(log_odds.softmax(1), 1, generator=generator).squeeze(1)


def test_without_effects_the_prior_is_the_outcome_frequencies():
    label = torch.tensor([0] * 5 + [1] * 2)
    prior = fit_effects(label, [])["prior"].exp()
    # One of each outcome is added: 6 and 3 of 14, and 1 of each other.
    assert torch.allclose(prior, torch.tensor([6, 3, 1, 1, 1, 1, 1]) / 14)


def test_one_effect_with_much_data_finds_the_rates_of_its_members():
    member = torch.arange(2).repeat_interleave(50_000)
    odds = torch.zeros(2, CLASSES)
    odds[1, 5] = 1.0
    label = draw(odds[member])
    fitted = fit_effects(label, [Effect("player", member, 2, (1.0,) * CLASSES)], sweeps=12)
    rates = (fitted["prior"] + fitted["player"]).softmax(1)
    counted = torch.stack([torch.bincount(label[member == one], minlength=CLASSES) for one in (0, 1)]) / 50_000
    assert torch.allclose(rates, counted, atol=0.004)


def test_few_balls_shrink_to_the_average_and_none_give_exactly_the_average():
    generator = torch.Generator().manual_seed(1)
    # Two hundred players who differ, five balls or two thousand each; the last has none.
    balls = torch.tensor([5, 2000] * 100)
    member = torch.arange(200).repeat_interleave(balls)
    odds = torch.randn(200, CLASSES, generator=generator) * 0.3
    fitted = fit_effects(draw(odds[member], 2), [Effect("player", member, 201)])["player"]
    assert fitted[200].tolist() == [0.0] * CLASSES
    assert fitted[0:200:2].square().mean().sqrt() < 0.12
    centred = odds - odds.mean(1, keepdim=True)
    known, truth = fitted[1:200:2], centred[1:200:2]
    agreement = torch.corrcoef(torch.stack([(known - known.mean(1, keepdim=True)).flatten(), truth.flatten()]))[0, 1]
    assert agreement > 0.95


def test_batting_in_high_scoring_overs_is_not_credited_to_the_player():
    generator = torch.Generator().manual_seed(3)
    over = torch.randint(2, (60_000,), generator=generator)
    # Player 0 bats in over 1 nine times of ten, player 1 in over 0; only the over matters.
    late = torch.rand(60_000, generator=generator) < torch.where(over == 1, 0.9, 0.1)
    player = torch.where(late, 0, 1)
    odds = torch.zeros(60_000, CLASSES)
    odds[:, 5] = over * 1.5
    label = draw(odds, 4)
    alone = fit_effects(label, [Effect("player", player, 2)])["player"]
    effects = [Effect("over", over, 2, (1.0,) * CLASSES), Effect("player", player, 2)]
    both = fit_effects(label, effects, sweeps=10)["player"]
    assert alone[0, 5] - alone[1, 5] > 0.6
    assert abs(both[0, 5] - both[1, 5]) < 0.1


def test_shifts_are_finite_for_outcomes_that_never_occurred():
    label = torch.tensor([0, 1] * 50)
    fitted = fit_effects(label, [Effect("player", torch.arange(2).repeat(50), 3)])
    assert all(value.isfinite().all() for value in fitted.values())
    assert math.isclose(float(fitted["prior"].exp().sum()), 1.0, rel_tol=1e-5)
