"""Advantages by hand, and against the textbook loop."""

import torch

from lockstep.rl.returns import discounted_sum, generalised_advantages


def test_three_steps_by_hand():
    # gamma 0.5, lambda 1: A2 = 1 + .5*4 - 3 = 0; A1 = 1 + .5*3 - 2 + .5*A2 = .5; A0 = 1 + .5*2 - 1 + .5*A1 = 1.25
    column = lambda *x: torch.tensor(x).view(-1, 1)  # noqa: E731
    advantage = generalised_advantages(
        column(1.0, 1.0, 1.0), column(1.0, 2.0, 3.0), column(False, False, False), torch.tensor([4.0]), 0.5, 1.0
    )
    assert advantage.flatten().tolist() == [1.25, 0.5, 0.0]


def test_nothing_flows_back_over_the_end_of_an_episode():
    column = lambda *x: torch.tensor(x).view(-1, 1)  # noqa: E731
    advantage = generalised_advantages(
        column(0.0, -1.0, 0.0), column(0.0, 0.0, 0.0), column(False, True, False), torch.tensor([100.0]), 0.9, 0.9
    )
    # The last step sees the 100 that follow it; the death before it does not.
    torch.testing.assert_close(advantage.flatten(), torch.tensor([-0.81, -1.0, 90.0]))


def test_equals_the_loop_for_random_roll_outs():
    generator = torch.Generator().manual_seed(0)
    for steps in (1, 2, 3, 7, 64, 100):
        reward, value = torch.randn(2, steps, 5, generator=generator)
        ended = torch.rand(steps, 5, generator=generator) < 0.2
        last = torch.randn(5, generator=generator)
        expected, following, next_value = torch.zeros(steps, 5), torch.zeros(5), last
        for t in reversed(range(steps)):
            alive = 1.0 - ended[t].float()
            following = reward[t] + 0.99 * next_value * alive - value[t] + 0.99 * 0.95 * alive * following
            expected[t], next_value = following, value[t]
        torch.testing.assert_close(
            generalised_advantages(reward, value, ended, last, 0.99, 0.95), expected, rtol=1e-5, atol=1e-5
        )


def test_a_discounted_sum_leaves_its_arguments_alone():
    values, factors = torch.ones(4, 1), torch.full((4, 1), 0.5)
    assert discounted_sum(values, factors).flatten().tolist() == [1.875, 1.75, 1.5, 1.0]
    assert values.sum() == 4 and factors.sum() == 2
