"""Attention to the last steps of an episode. T: time, B: sequences, W: steps in sight, H: features, N: heads.

A step sees itself and up to W - 1 steps before it, as far back as its own episode goes. What lies before the first step
of a sequence comes with it, so that a sequence gives what its steps would give one by one.
"""

import torch
from torch import Tensor, nn


class Sight:
    """Which steps each step of some sequences sees: worked out once, for every layer of attention alike."""

    def __init__(self, age: Tensor, keep: Tensor, window: int) -> None:
        """`age` (B,): earlier steps of the episode, at most W - 1. `keep` (T, B): 0.0 where one begins, else 1.0."""
        steps, before = len(keep), window - 1
        time = torch.arange(steps, device=keep.device)[:, None]
        begins = torch.where(keep == 0.0, time, -age.long())
        reach = (time - begins.cummax(0).values).clamp_(max=before)
        place = torch.arange(before + steps, device=keep.device)
        now = place[before:, None]
        self.seen = ((place <= now) & (place >= now - reach.t()[..., None])).unsqueeze(1)
        """(B, 1, T, W - 1 + T) whether step t sees a place: the W - 1 steps before the sequence, then its own."""
        self.age = (reach[-1] + 1).clamp_(max=before).to(age.dtype)
        """(B,) the age after the last step."""


class WindowedAttention(nn.Module):
    """Self-attention with N heads over the steps in sight."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.query = nn.Linear(size, size)
        self.pair = nn.Linear(size, 2 * size)
        self.out = nn.Linear(size, size)

    def forward(self, features: Tensor, earlier: Tensor, sight: Sight) -> Tensor:
        """What each step (T, B, H) makes of those in sight; earlier (B, W - 1, H): those before the sequence."""
        steps = features.transpose(0, 1)
        key, value = self.pair(torch.cat((earlier.to(steps.dtype), steps), dim=1)).chunk(2, dim=-1)
        query, key, value = (self._split(part) for part in (self.query(steps), key, value))
        scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
        weights = scores.masked_fill(~sight.seen, float("-inf")).softmax(-1)
        found = weights.to(value.dtype) @ value
        return self.out(found.transpose(1, 2).flatten(2)).transpose(0, 1)

    def _split(self, part: Tensor) -> Tensor:
        """(B, T, H) -> (B, N, T, H / N)."""
        return part.unflatten(-1, (self._heads, -1)).transpose(1, 2)


def slide(earlier: Tensor, features: Tensor) -> Tensor:
    """The last W - 1 steps (B, W - 1, H) after those of a sequence (T, B, H)."""
    return torch.cat((earlier, features.transpose(0, 1).to(earlier.dtype)), dim=1)[:, -earlier.shape[1] :]
