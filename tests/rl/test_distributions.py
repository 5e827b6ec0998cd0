"""Sampling from given uniform numbers."""

import math

import torch

from lockstep.rl import distributions


def test_a_uniform_number_picks_the_interval_it_falls_into():
    log_probabilities = torch.tensor([0.2, 0.3, 0.5]).log().expand(5, 3)
    uniform = torch.tensor([0.0, 0.19, 0.21, 0.49, 0.51])
    assert distributions.sample_categorical(log_probabilities, uniform).tolist() == [0, 0, 1, 1, 2]


def test_rounding_never_picks_an_action_that_does_not_exist():
    log_probabilities = torch.full((1, 3), math.log(1 / 3)) - 1e-6
    assert distributions.sample_categorical(log_probabilities, torch.tensor([1 - 2.0**-24])).tolist() == [2]


def test_frequencies_follow_the_probabilities():
    probabilities = torch.tensor([0.1, 0.6, 0.3])
    uniform = (torch.arange(10_000) + 0.5) / 10_000
    actions = distributions.sample_categorical(probabilities.log().expand(10_000, 3), uniform)
    assert torch.bincount(actions).tolist() == [1000, 6000, 3000]


def test_entropy_of_a_fair_coin_is_log_two_and_of_certainty_zero():
    fair = distributions.log_softmax(torch.tensor([[1.0, 1.0]]))
    sure = distributions.log_softmax(torch.tensor([[50.0, -50.0]]))
    torch.testing.assert_close(distributions.entropy(fair), torch.tensor([math.log(2)]))
    torch.testing.assert_close(distributions.entropy(sure), torch.tensor([0.0]))


def test_chosen_reads_the_log_probability_of_each_action():
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert distributions.chosen(table, torch.tensor([1, 0])).tolist() == [2.0, 3.0]


def test_a_normal_distribution_of_actions_by_hand():
    actions = distributions.GaussianActions(2)
    # Means 1 and -2, deviations 1 and e; each row of outputs has the means first.
    outputs = torch.tensor([[1.0, -2.0, 0.0, 1.0]])
    normal = actions.of(outputs)
    drawn = normal.draw(torch.tensor([[0.5, -1.0]]))
    torch.testing.assert_close(drawn, torch.tensor([[1.5, -2.0 - math.e]]))
    log_tau = math.log(2 * math.pi)
    torch.testing.assert_close(normal.log_probability(drawn), torch.tensor([-0.5 * 0.25 - 0.5 - 1.0 - log_tau]))
    torch.testing.assert_close(normal.entropy(), torch.tensor([1.0 + log_tau + 1.0]))
    assert actions.mode(outputs).tolist() == [[1.0, -1.0]], "an environment takes numbers from -1 to 1"


def test_the_noise_of_an_environment_is_its_own_whoever_draws_it():
    actions, clock = distributions.GaussianActions(3), torch.arange(2)
    together = actions.noise(1, torch.arange(4), clock)
    alone = actions.noise(1, torch.tensor([2]), clock)
    assert together.shape == (2, 4, 3) and torch.equal(together[:, 2:3], alone)
    assert len(set(together.flatten().tolist())) == 24
