"""Advantages and returns of a rollout. T: time, E: environments."""

import torch
from torch import Tensor


def discounted_sum(values: Tensor, factors: Tensor) -> Tensor:
    """x[t] = values[t] + factors[t] * x[t + 1] for (T, E), as a parallel scan."""
    # log2(T) passes over the whole tensor; a loop over time would launch T small kernels. After a pass, total[t] covers
    # 2 * shift terms, and product[t] is what the total that follows them is multiplied by.
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
    """GAE(lambda), (T, E). `ended`: the episode ends with this step. `last_value` (E,): after the last step.

    For truncated episodes the caller has already added the discounted bootstrap value to the reward.
    """
    continues = 1.0 - ended.to(value.dtype)
    next_value = torch.cat((value[1:], last_value.unsqueeze(0)))
    td_error = reward + gamma * next_value * continues - value
    return discounted_sum(td_error, gamma * gae_lambda * continues)
