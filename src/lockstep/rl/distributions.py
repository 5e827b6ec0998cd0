"""Distributions over actions, sampled from given random numbers so that a draw is a pure function."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lockstep.compute import random


def sample_categorical(log_probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The action whose cumulative probability first exceeds the uniform number: (..., A), (...) -> (...) int64."""
    cumulative = log_probabilities.exp().cumsum(-1)
    # Rounding can leave the last cumulative value just below a uniform number next to one, which is then lowered to the
    # next number below that value. So an action of probability 0 is never chosen, the last one not either.
    uniform = torch.minimum(uniform, cumulative[..., -1] * (1 - 2.0**-24))
    # The number of cumulative values that are not above it is the index of the first one that is.
    return (cumulative <= uniform.unsqueeze(-1)).sum(-1)


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

    def sample_of(self, action: Tensor) -> Tensor:
        """The sample that becomes this action of the environment: the inverse of `bounded`."""
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


class MultiCategoricalActions:
    """Several independent choices, choice i one out of A_i; outputs (..., sum of A) are the logits of all choices."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self._counts = counts

    def storage(self, steps: int, count: int, device: torch.device) -> Tensor:
        """Zeros with room for the actions of T steps in E environments: (T, E, choices)."""
        return torch.zeros((steps, count, len(self._counts)), dtype=torch.int64, device=device)

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E, choices) uniform numbers, for environments `index` (E,) at steps `clock` (T,)."""
        choice = torch.arange(len(self._counts), device=index.device)
        return random.uniform(seed, purpose, index[None, :, None], clock[:, None, None], choice)

    def of(self, outputs: Tensor) -> "MultiCategorical":
        """The distribution that the network's outputs describe."""
        return MultiCategorical([Categorical(log_softmax(logits)) for logits in outputs.split(self._counts, dim=-1)])

    def mode(self, outputs: Tensor) -> Tensor:
        """The most probable action of every choice."""
        return torch.stack([logits.argmax(-1) for logits in outputs.split(self._counts, dim=-1)], dim=-1)

    def bounded(self, action: Tensor) -> Tensor:
        """The action as the environment expects it; discrete ones need no change."""
        return action

    def sample_of(self, action: Tensor) -> Tensor:
        """The sample that becomes this action of the environment: the inverse of `bounded`."""
        return action


class MultiCategorical:
    """Independent categorical distributions: log-probabilities and entropies add up over the choices."""

    def __init__(self, choices: list[Categorical]) -> None:
        self._choices = choices

    def draw(self, noise: Tensor) -> Tensor:
        """Sample actions (..., choices) with uniform numbers (..., choices)."""
        pairs = zip(self._choices, noise.unbind(-1), strict=True)
        return torch.stack([choice.draw(uniform) for choice, uniform in pairs], dim=-1)

    def probabilities(self) -> Tensor:
        """The probability of every action of every choice, one choice after the other: (..., sum of A)."""
        return torch.cat([choice.probabilities() for choice in self._choices], dim=-1)

    def log_probability(self, action: Tensor) -> Tensor:
        """The log-probability of the given actions, (...)."""
        pairs = zip(self._choices, action.unbind(-1), strict=True)
        return torch.stack([choice.log_probability(chosen) for choice, chosen in pairs]).sum(0)

    def entropy(self) -> Tensor:
        """The entropy in nats, (...)."""
        return torch.stack([choice.entropy() for choice in self._choices]).sum(0)


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

    def sample_of(self, action: Tensor) -> Tensor:
        """A sample that becomes this action of the environment: the action itself, which is within the bounds."""
        return action


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


class SquashedGaussianActions(GaussianActions):
    """Continuous actions within bounds: the tanh of a normal sample. What is stored is the sample before the tanh.

    Storing the action itself would lose the sample wherever the tanh rounds to 1.
    """

    def of(self, outputs: Tensor) -> "SquashedGaussian":
        """The distribution that the network's outputs describe, in fp32 as exponentials follow."""
        mean, log_deviation = outputs.float().chunk(2, dim=-1)
        return SquashedGaussian(mean, log_deviation)

    def bounded(self, action: Tensor) -> Tensor:
        """The action for the environment: tanh of the sample."""
        return action.tanh()

    def sample_of(self, action: Tensor) -> Tensor:
        """The sample before the tanh; the bounds themselves have none, so they count as a point just within."""
        return action.clamp(-1 + 1e-6, 1 - 1e-6).atanh()


class SquashedGaussian(Gaussian):
    """The tanh of a normal vector, described by samples before the tanh."""

    def log_probability(self, action: Tensor) -> Tensor:
        """The log-density of the actions that these samples become, (...)."""
        # Change of variables: the density of tanh(x) is that of x divided by the slope of tanh.
        return super().log_probability(action) - log_slope_of_tanh(action).sum(-1)

    def entropy(self) -> Tensor:
        """An estimate of the entropy in nats, (...): it has no closed form.

        It is the normal's entropy plus the mean log-slope of tanh, which Gauss-Hermite quadrature takes as a weighted
        mean over 8 fixed points: it needs no random numbers, and gradients flow through it. For standard deviations up
        to 1 its error is below 0.01 nats for each component; where nearly all samples are saturated it is rougher.
        """
        deviation = self._log_deviation.exp()
        slopes = (weight * log_slope_of_tanh(self._mean + deviation * point) for point, weight in _QUADRATURE)
        return super().entropy() + torch.stack(tuple(slopes)).sum(0).sum(-1)


def log_slope_of_tanh(value: Tensor) -> Tensor:
    """log(1 - tanh(x)^2) for every element, in a form that stays finite where the tanh rounds to 1."""
    return 2.0 * (math.log(2.0) - value - functional.softplus(-2.0 * value))


def _normal_quadrature(count: int) -> list[tuple[float, float]]:
    """(point, weight) pairs for the mean of a function of a standard normal number."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return list(zip(points.tolist(), (weights / weights.sum()).tolist(), strict=True))


_QUADRATURE = _normal_quadrature(8)
ActionFamily = CategoricalActions | MultiCategoricalActions | GaussianActions
"""How a network's outputs become actions."""
