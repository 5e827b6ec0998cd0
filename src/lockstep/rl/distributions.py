"""Distributions over actions, sampled from given random numbers so that a draw is a pure function."""

import math

import torch
from torch import Tensor

from lockstep.compute import random


def sample_categorical(log_probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The action whose cumulative probability first exceeds the uniform number: (..., A), (...) -> (...) int64."""
    cumulative = log_probabilities.exp().cumsum(-1)
    # The number of cumulative values that are not above it is the index of the first one that is.
    action = (cumulative <= uniform.unsqueeze(-1)).sum(-1)
    # Rounding can leave the last cumulative value just below a uniform number next to one.
    return action.clamp_(max=log_probabilities.shape[-1] - 1)


def entropy(log_probabilities: Tensor) -> Tensor:
    """Entropy of a categorical distribution in nats: (..., A) -> (...)."""
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def chosen(log_probabilities: Tensor, action: Tensor) -> Tensor:
    """The log-probability of the chosen action: (..., A), (...) -> (...)."""
    return log_probabilities.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def log_softmax(logits: Tensor) -> Tensor:
    """Normalised log-probabilities in fp32, whatever format the network computes in."""
    return torch.log_softmax(logits.float(), dim=-1)


class CategoricalActions:
    """Discrete actions, one out of A; the network's outputs are logits (..., A)."""

    def storage(self, steps: int, count: int, device: torch.device) -> Tensor:
        """Zeros with room for the actions of T steps in E environments: (T, E)."""
        return torch.zeros((steps, count), dtype=torch.int64, device=device)

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E) uniform numbers to sample actions with, for environments `index` (E,) at steps `clock` (T,)."""
        return random.uniform(seed, purpose, index[None, :], clock[:, None])

    def of(self, outputs: Tensor) -> "Categorical":
        """The distribution that the network's outputs describe."""
        return Categorical(log_softmax(outputs))

    def mode(self, outputs: Tensor) -> Tensor:
        """The most probable action."""
        return outputs.argmax(-1)

    def bounded(self, action: Tensor) -> Tensor:
        """The action as the environment expects it; a discrete one needs no change."""
        return action


class Categorical:
    """A categorical distribution over A actions."""

    def __init__(self, log_probabilities: Tensor) -> None:
        self._log_probabilities = log_probabilities

    def draw(self, noise: Tensor) -> Tensor:
        """Sample actions (...) with uniform numbers (...)."""
        return sample_categorical(self._log_probabilities, noise)

    def probabilities(self) -> Tensor:
        """The probability of every action, (..., A)."""
        return self._log_probabilities.exp()

    def log_probability(self, action: Tensor) -> Tensor:
        """The log-probability of the given actions, (...)."""
        return chosen(self._log_probabilities, action)

    def entropy(self) -> Tensor:
        """The entropy in nats, (...)."""
        return entropy(self._log_probabilities)


class GaussianActions:
    """Continuous actions; the network's outputs (..., 2A) are means, then logarithms of standard deviations."""

    def __init__(self, size: int) -> None:
        self._size = size

    def storage(self, steps: int, count: int, device: torch.device) -> Tensor:
        """Zeros with room for the actions of T steps in E environments: (T, E, A)."""
        return torch.zeros((steps, count, self._size), device=device)

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E, A) standard normal numbers, for environments `index` (E,) at steps `clock` (T,)."""
        component = torch.arange(self._size, device=index.device)
        return random.normal(seed, purpose, index[None, :, None], clock[:, None, None], component)

    def of(self, outputs: Tensor) -> "Gaussian":
        """The distribution that the network's outputs describe, in fp32 as exponentials follow."""
        mean, log_deviation = outputs.float().chunk(2, dim=-1)
        return Gaussian(mean, log_deviation)

    def mode(self, outputs: Tensor) -> Tensor:
        """The mean, clamped to the environment's bounds."""
        return self.bounded(outputs.float().chunk(2, dim=-1)[0])

    def bounded(self, action: Tensor) -> Tensor:
        """The action clamped to the environment's bounds."""
        # Only the environment gets the clamped action. The policy learns from the sample as drawn, since the
        # log-probability of a clamped one would be wrong.
        return action.clamp(-1.0, 1.0)


class Gaussian:
    """A normal distribution over vectors with independent components (a diagonal covariance)."""

    def __init__(self, mean: Tensor, log_deviation: Tensor) -> None:
        self._mean, self._log_deviation = mean, log_deviation

    def draw(self, noise: Tensor) -> Tensor:
        """Sample actions (..., A) with standard normal numbers (..., A)."""
        return self._mean + self._log_deviation.exp() * noise

    def log_probability(self, action: Tensor) -> Tensor:
        """The log-density of the given actions, (...)."""
        scaled = (action - self._mean) * (-self._log_deviation).exp()
        return (-0.5 * scaled.square() - self._log_deviation - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy in nats, (...)."""
        return (self._log_deviation + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


ActionFamily = CategoricalActions | GaussianActions
"""How a network's outputs become actions."""
