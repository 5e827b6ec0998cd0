"""Distributions over actions, sampled from given uniform numbers so that a draw is a pure function."""

import torch
from torch import Tensor


def sample_categorical(log_probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The action whose cumulative probability first exceeds the uniform number: (..., A), (...) -> (...) int64."""
    cumulative = log_probabilities.exp().cumsum(-1)
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
