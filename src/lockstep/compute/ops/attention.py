"""Windowed attention within an episode. T: time, B: sequences, W: window length, H: features, N: heads.

A step attends to itself and to up to W - 1 earlier steps of its own episode. The steps before the start of a sequence
are passed along with it, so that a sequence gives the same result as its steps one by one.
"""

import torch
from torch import Tensor, nn


class AttentionMask:
    """The attention mask of a batch of sequences, computed once and shared by all layers."""

    def __init__(self, age: Tensor, keep: Tensor, window: int) -> None:
        """`age` (B,): earlier steps of the episode, at most W - 1. `keep` (T, B): 0.0 at a first step, else 1.0."""
        steps, before = len(keep), window - 1
        time = torch.arange(steps, device=keep.device)[:, None]
        # (T, B) the start of the current episode, relative to the sequence: negative if it lies before the sequence.
        begins = torch.where(keep == 0.0, time, -age.long())
        # A single step needs no running maximum, which ONNX does not have.
        latest = begins if steps == 1 else begins.cummax(0).values
        # (T, B) how many earlier steps each step attends to.
        reach = (time - latest).clamp(max=before)
        # Keys are the W - 1 steps before the sequence, then the sequence itself; step t is key W - 1 + t.
        place = torch.arange(before + steps, device=keep.device)
        now = place[before:, None]
        self.seen = ((place <= now) & (place >= now - reach.t()[..., None])).unsqueeze(1)
        """(B, 1, T, W - 1 + T) whether step t attends to a key; the axis of size 1 is for the heads."""
        self.age = (reach[-1] + 1).clamp_(max=before).to(age.dtype)
        """(B,) the age after the last step, for the next sequence."""


class WindowedAttention(nn.Module):
    """Self-attention with N heads over the window."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.query = nn.Linear(size, size)
        self.pair = nn.Linear(size, 2 * size)
        self.out = nn.Linear(size, size)

    def forward(self, features: Tensor, earlier: Tensor, sight: AttentionMask) -> Tensor:
        """Attended features (T, B, H) for features (T, B, H); earlier (B, W - 1, H): those before the sequence."""
        steps = features.transpose(0, 1)
        # (B, W - 1 + T, H) each. Keys and values share one product.
        key, value = self.pair(torch.cat((earlier.to(steps.dtype), steps), dim=1)).chunk(2, dim=-1)
        query, key, value = (self._split(part) for part in (self.query(steps), key, value))
        # Scores and softmax in fp32: bf16 has too few digits for the differences that the softmax is about.
        scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
        # Every step attends to itself, so no row is masked completely, which would give NaN.
        weights = scores.masked_fill(~sight.seen, float("-inf")).softmax(-1)
        found = weights.to(value.dtype) @ value
        return self.out(found.transpose(1, 2).flatten(2)).transpose(0, 1)

    def _split(self, part: Tensor) -> Tensor:
        """(B, T, H) -> (B, N, T, H / N)."""
        return part.unflatten(-1, (self._heads, -1)).transpose(1, 2)


def slide(earlier: Tensor, features: Tensor) -> Tensor:
    """The W - 1 steps (B, W - 1, H) to pass along with the sequence that follows this one (T, B, H)."""
    return torch.cat((earlier, features.transpose(0, 1).to(earlier.dtype)), dim=1)[:, -earlier.shape[1] :]
