"""Ensembles within a network: K members, each with its own loss, whose predictions are averaged.

B: samples, K: members, C: classes.
"""

import math

from torch import Tensor
from torch.nn import functional as F


def by_member(logits: Tensor) -> Tensor:
    """Log-probabilities (B, K, C) in fp32 of logits (B, C) or (B, K, C)."""
    # Losses and metrics stay in fp32, whatever the precision of the network.
    each = logits if logits.dim() == 3 else logits.unsqueeze(1)
    return F.log_softmax(each.float(), dim=-1)


def together(log_probabilities: Tensor) -> Tensor:
    """(B, K, C) -> (B, C): the log of the mean of the members' probabilities."""
    # logsumexp instead of exp, mean and log, which would underflow for unlikely classes.
    members = log_probabilities.shape[1]
    return log_probabilities.squeeze(1) if members == 1 else log_probabilities.logsumexp(1) - math.log(members)
