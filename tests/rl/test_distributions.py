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


def test_an_action_of_probability_zero_is_never_drawn_the_last_one_not_either():
    # Rounding leaves a total below the largest uniform number; the last two actions are impossible.
    log_probabilities = torch.tensor([[0.5, 0.5, 0.0, 0.0]]).log() - 1e-6
    assert distributions.sample_categorical(log_probabilities, torch.tensor([1 - 2.0**-24])).tolist() == [1]
    assert distributions.sample_categorical(log_probabilities.flip(-1), torch.tensor([0.0])).tolist() == [2]


def test_several_choices_add_up():
    actions = distributions.MultiCategoricalActions((2, 3))
    # 3/4 and 1/4; 1/2, 1/4 and 1/4.
    outputs = torch.tensor([[math.log(3), 0.0, math.log(2), 0.0, 0.0]])
    choices = actions.of(outputs)
    torch.testing.assert_close(choices.probabilities(), torch.tensor([[0.75, 0.25, 0.5, 0.25, 0.25]]))
    torch.testing.assert_close(choices.log_probability(torch.tensor([[1, 0]])), torch.tensor([math.log(1 / 8)]))
    both = -0.75 * math.log(0.75) - 0.25 * math.log(0.25) + 1.5 * math.log(2)
    torch.testing.assert_close(choices.entropy(), torch.tensor([both]))
    assert choices.draw(torch.tensor([[0.8, 0.6]])).tolist() == [[1, 1]]
    assert actions.mode(outputs).tolist() == [[0, 0]]


def test_each_of_several_choices_has_noise_of_its_own():
    actions = distributions.MultiCategoricalActions((2, 3))
    noise = actions.noise(1, torch.arange(4), torch.arange(2))
    assert noise.shape == actions.storage(2, 4, torch.device("cpu")).shape == (2, 4, 2)
    assert len(set(noise.flatten().tolist())) == 16
    assert torch.equal(noise[:, 2:3], actions.noise(1, torch.tensor([2]), torch.arange(2)))


def test_a_squashed_sample_has_the_density_of_torchs_own_transform():
    squashed = distributions.SquashedGaussianActions(2).of(torch.tensor([[0.3, -0.2, 0.1, -0.5]]))
    sample = torch.tensor([[0.4, -0.9]])
    normal = torch.distributions.Normal(torch.tensor([[0.3, -0.2]]), torch.tensor([[0.1, -0.5]]).exp())
    reference = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
    expected = reference.log_prob(sample.tanh()).sum(-1)
    torch.testing.assert_close(squashed.log_probability(sample), expected)


def test_a_saturated_sample_stays_finite_and_so_do_its_gradients():
    outputs = torch.tensor([[40.0, 0.0]], requires_grad=True)
    squashed = distributions.SquashedGaussianActions(1).of(outputs)
    # log(1 - tanh^2) = 2 (log 2 - x) far out, and the density of the normal at its mean.
    expected = -0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - 40)
    found = squashed.log_probability(torch.tensor([[40.0]]))
    torch.testing.assert_close(found, torch.tensor([expected]))
    (found + squashed.entropy()).sum().backward()
    assert torch.isfinite(outputs.grad).all()


def test_a_squashed_action_and_its_sample_are_inverse():
    actions = distributions.SquashedGaussianActions(1)
    sample = torch.tensor([[-1.5], [0.0], [2.0]])
    torch.testing.assert_close(actions.sample_of(actions.bounded(sample)), sample)
    assert torch.isfinite(actions.sample_of(torch.tensor([[-1.0], [1.0]]))).all()
    torch.testing.assert_close(actions.mode(torch.tensor([[0.5, 0.0]])), torch.tensor([[math.tanh(0.5)]]))


def test_the_estimated_entropy_of_a_squashed_normal_is_that_of_many_samples():
    for mean, log_deviation in ((0.0, 0.0), (1.0, -1.0), (-0.5, -0.3)):
        squashed = distributions.SquashedGaussianActions(1).of(torch.tensor([[mean, log_deviation]]))
        grid = torch.special.ndtri((torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000).float()
        samples = squashed.draw(grid[:, None])
        assert abs(squashed.entropy().item() + squashed.log_probability(samples).mean().item()) < 0.01
