"""The operators of the graph, dense. B: samples, N: nodes, L: balls, C: channels, H: heads, D: channels of a head.

Each computes what PyTorch Geometric computes on the same edges (a test compares them), on dense tensors: no edge lists
and no collation. On a GPU, those that read balls are kernels (`fused`).

* GATv2 between two single nodes has a softmax over one edge, which is always 1. The message is the source's
  projection, so all such edges together are one matrix product, without attention weights.
* Terms that several relations add to the same target (biases, the root terms of TransformerConv and SAGE) are equal to
  one such term, which is held once.
* TransformerConv's key bias shifts all scores of a target equally, which softmax ignores; it is left out.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.compute import torch_private
from lockstep.compute.kernels import kernels_usable
from lockstep.compute.ops.products import product
from lockstep.workloads.cricket.network import fused
from lockstep.workloads.cricket.network.edges import Edges, additive_mask
from lockstep.workloads.cricket.network.graph import MATCHUP_BALLS

_SLOPE = 0.2
"""Negative slope of GATv2's leaky ReLU, PyTorch Geometric's default."""


class NodeLinear(nn.Module):
    """A linear layer with a separate matrix per node: (B, N, I) -> (B, N, O)."""

    def __init__(self, nodes: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(nodes, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(nodes, outputs))
        glorot(self.weight, inputs, outputs)

    def forward(self, nodes: Tensor) -> Tensor:
        """Apply each node's matrix."""
        return torch.bmm(nodes.transpose(0, 1), self.weight).transpose(0, 1) + self.bias


class NodeNorm(nn.Module):
    """Layer normalisation with a separate scale and bias per node: (B, N, C) -> (B, N, C)."""

    def __init__(self, nodes: int, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(nodes, channels))
        self.bias = nn.Parameter(torch.zeros(nodes, channels))

    def forward(self, nodes: Tensor) -> Tensor:
        """Normalise over channels, then apply each node's scale and bias."""
        return F.layer_norm(nodes, nodes.shape[-1:]) * self.scale + self.bias


class SingleEdges(nn.Module):
    """GATv2 between single nodes: S nodes of (B, C) -> (T, B, C), by edges (source, target), each with its matrix."""

    def __init__(self, targets: int, edges: list[tuple[int, int]], channels: int) -> None:
        super().__init__()
        self._sources = [source for source, _ in edges]
        self.weight = nn.Parameter(torch.empty(len(edges), channels, channels))
        glorot(self.weight, channels, channels)
        member = torch.zeros(targets, len(edges))
        for number, (_, target) in enumerate(edges):
            member[target, number] = 1.0
        self._member: Tensor
        self.register_buffer("_member", member, persistent=False)

    def forward(self, nodes: Sequence[Tensor]) -> Tensor:
        """Messages to each target."""
        messages = torch.bmm(torch.stack([nodes[source] for source in self._sources]), self.weight)
        # A matrix product sums by target; unlike index_add_, it does so in a fixed order on a GPU.
        return (self._member.to(messages.dtype) @ messages.flatten(1)).view(len(self._member), *messages.shape[1:])


class BallAttention(nn.Module):
    """GATv2 from balls to T single nodes, each by a relation of its own: (B, L, C), (B, T, C) -> (B, T, C)."""

    def __init__(self, targets: int, channels: int, heads: int) -> None:
        super().__init__()
        self.source = nn.Linear(channels, targets * channels)
        self.target = NodeLinear(targets, channels, channels)
        self.attention = nn.Parameter(torch.empty(targets, heads, channels // heads))
        glorot(self.attention, channels // heads, heads)
        glorot(self.source.weight, channels, channels)
        nn.init.zeros_(self.source.bias)

    def forward(self, balls: Tensor, nodes: Tensor, mask: Tensor) -> Tensor:
        """Messages to each node; mask (B, T or 1, L): which balls it reads; 0 if it reads none."""
        targets, heads, depth = self.attention.shape
        source, target = self.source(balls), self.target(nodes)
        if kernels_usable(source.device):
            return fused.node_attention(source, target.to(source.dtype), self.attention, mask)
        source = source.view(*balls.shape[:2], targets, heads, depth)
        target = target.view(-1, 1, targets, heads, depth)
        scores = (F.leaky_relu(source + target, _SLOPE) * self.attention).sum(-1)
        allowed = mask.transpose(1, 2).unsqueeze(-1)
        # Softmax in float32 whatever the precision; multiplying by `allowed` gives 0 to a node that reads no ball.
        weights = (scores.float() + additive_mask(allowed)).softmax(1) * allowed
        return (weights.to(source.dtype)[..., None] * source).sum(1).flatten(2)


class GapAttention(nn.Module):
    """The sum of R TransformerConvs between balls, without their root terms: (B, L, C) -> (B, L, C).

    Every edge has one feature, such as the gap between the two balls.
    """

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(channels, relations * channels)
        self.key = nn.Linear(channels, relations * channels, bias=False)
        self.value = nn.Linear(channels, relations * channels)
        self.edge = nn.Parameter(torch.empty(relations, heads, channels // heads))
        for layer in (self.query, self.key, self.value):
            glorot(layer.weight, channels, channels)
        for biased in (self.query, self.value):
            nn.init.zeros_(biased.bias)
        glorot(self.edge, 1, channels)

    def forward(self, balls: Tensor, edges: Edges) -> Tensor:
        """Messages to each ball; an edge's feature adds its multiple of `edge` to keys and values."""
        query, key, value = self.query(balls), self.key(balls), self.value(balls)
        if kernels_usable(query.device):
            numbers = edges.number, edges.own_number
            return fused.gap_attention(query, key, value, self.edge, edges.allowed, *numbers)
        relations, heads, depth = self.edge.shape

        def by_head(part: Tensor) -> Tensor:
            return part.view(*balls.shape[:2], relations, heads, depth).permute(0, 2, 3, 1, 4)

        query, key, value = by_head(query) / math.sqrt(depth), by_head(key), by_head(value)
        number = edges.number[:, None]
        # With an edge feature n, a key is k + n * edge, so its score is q.k + n * (q.edge): no tensor of keys per edge.
        along = (query * self.edge[:, :, None]).sum(-1, keepdim=True)
        scores = product(query, key.transpose(-1, -2)).float() + torch.addcmul(edges.score_mask, along.float(), number)
        weights = scores.softmax(-1)
        # The same for values: the weighted mean feature times `edge`.
        mean = (weights * number).sum(-1, keepdim=True) + edges.own_number[:, :, None, :, None]
        # A ball without incoming edges gets no message; its softmax over masked scores is meaningless.
        messages = (product(weights.to(value.dtype), value) + mean * self.edge[:, :, None]) * edges.has_incoming
        return messages.sum(1).transpose(1, 2).flatten(2)


class MatchupAttention(nn.Module):
    """GATv2 from the earlier balls of the same batter and bowler: (B, L, C) -> (B, L, C)."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.source = nn.Linear(channels, channels)
        self.target = nn.Linear(channels, channels)
        self.attention = nn.Parameter(torch.empty(heads, channels // heads))
        for layer in (self.source, self.target):
            glorot(layer.weight, channels, channels)
            nn.init.zeros_(layer.bias)
        glorot(self.attention, channels // heads, heads)

    def forward(self, balls: Tensor, edges: Edges) -> Tensor:
        """Messages to each ball, from up to MATCHUP_BALLS earlier balls of its matchup."""
        order, rank = edges.order, edges.rank
        if kernels_usable(balls.device):
            source, target = self.source(balls), self.target(balls)
            return fused.matchup_attention(source, target, self.attention, order, rank, MATCHUP_BALLS)
        inverse, window = edges.inverse, edges.window
        (heads, depth), (count, length, span) = self.attention.shape, window.shape
        # Sorted by matchup, a ball's sources are the positions directly before it: a sliding window.
        ranked = torch_private.apply(_Reordered, balls, order, inverse)
        source = F.pad(self.source(ranked), (0, 0, span, 0)).unfold(1, span, 1)[:, :length].transpose(2, 3)
        scores = F.leaky_relu(source + self.target(ranked)[:, :, None], _SLOPE) @ self._by_head()
        allowed = window[..., None]
        weights = ((scores.float() + additive_mask(allowed)).softmax(2) * allowed).to(source.dtype)
        by_head = source.reshape(count, length, span, heads, depth) * weights[..., None]
        return torch_private.apply(_Reordered, by_head.sum(2).flatten(2), inverse, order)

    def _by_head(self) -> Tensor:
        """(C, H) the attention vectors as a block-diagonal matrix, which scores all heads in one product."""
        heads = self.attention.shape[0]
        return (self.attention[:, :, None] * torch.eye(heads, device=self.attention.device)[:, None]).flatten(0, 1)


class _Reordered(torch.autograd.Function):
    """Reorders balls. Its gradient is a gather, too; PyTorch's would be a scatter, which sums in no fixed order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(balls: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        return balls.gather(1, order[..., None].expand_as(balls))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (inverse,) = ctx.saved_tensors
        return gradient.gather(1, inverse[..., None].expand_as(gradient)), None, None


def glorot(weight: Tensor, inputs: int, outputs: int) -> None:
    """Glorot uniform initialisation, as in PyTorch Geometric."""
    bound = math.sqrt(6.0 / (inputs + outputs))
    nn.init.uniform_(weight, -bound, bound)
