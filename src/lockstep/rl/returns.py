"""Advantages and returns of a roll-out. T: time, E: environments."""

import torch
from torch import Tensor


def discounted_sum(values: Tensor, factors: Tensor) -> Tensor:
    """x[t] = values[t] + factors[t] * x[t + 1] for (T, E), in log2(T) passes instead of T small ones."""
    total, product = values.clone(), factors.clone()
    shift = 1
    while shift < values.shape[0]:
        reach = total[shift:] * product[:-shift]
        further = product[:-shift] * product[shift:]
        total[:-shift] += reach
        product = torch.cat((further, torch.zeros_like(product[-shift:])))
        shift *= 2
    return total


def generalised_advantages(
    reward: Tensor, value: Tensor, ended: Tensor, last_value: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """GAE(lambda), (T, E). `ended`: another episode begins after this step; `last_value` (E,) follows the last step.

    An episode that was cut rather than finished has the value of what would have followed in its reward already.
    """
    going_on = 1.0 - ended.to(value.dtype)
    next_value = torch.cat((value[1:], last_value.unsqueeze(0)))
    surprise = reward + gamma * next_value * going_on - value
    return discounted_sum(surprise, gamma * gae_lambda * going_on)
