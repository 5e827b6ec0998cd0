"""The operators of the graph, dense. B: samples, N: nodes, L: balls, C: channels, H: heads, D: channels of a head.

Each is what PyTorch Geometric computes on the same edges (tests hold it to that), put so that nothing is collated:

* GATv2 between two nodes of types with one node each has a softmax over one edge, which is 1 whatever the attention
  says: what arrives is the source's projection, so all such edges together are one matrix product.
* What several relations only add to a target (biases, the root terms of TransformerConv and SAGE) is held once.
* The key's bias of TransformerConv moves all scores of a target alike, which a softmax does not see; there is none.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.parts.products import product

_NEVER = -1e4
"""A score that softmax turns into 0, also in half precision."""
_SLOPE = 0.2


class NodeLinear(nn.Module):
    """A matrix of its own for each node: (B, N, I) -> (B, N, O)."""

    def __init__(self, nodes: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(nodes, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(nodes, outputs))
        glorot(self.weight, inputs, outputs)

    def forward(self, nodes: Tensor) -> Tensor:
        """Every node through its matrix."""
        return torch.bmm(nodes.transpose(0, 1), self.weight).transpose(0, 1) + self.bias


class NodeNorm(nn.Module):
    """Layer normalisation with a scale and a bias of its own for each node: (B, N, C) -> (B, N, C)."""

    def __init__(self, nodes: int, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(nodes, channels))
        self.bias = nn.Parameter(torch.zeros(nodes, channels))

    def forward(self, nodes: Tensor) -> Tensor:
        """Mean 0 and deviation 1 over channels, then each node's scale."""
        return F.layer_norm(nodes, nodes.shape[-1:]) * self.scale + self.bias


class SingleEdges(nn.Module):
    """GATv2 between single nodes: (B, S, C) -> (B, T, C), by edges (source, target), each with its own matrix."""

    def __init__(self, sources: int, targets: int, edges: list[tuple[int, int]], channels: int) -> None:
        super().__init__()
        self._shape = sources, targets, channels
        self.weight = nn.Parameter(torch.empty(len(edges), channels, channels))
        glorot(self.weight, channels, channels)
        place = torch.tensor([source * targets + target for source, target in edges])
        self._place: Tensor
        self.register_buffer("_place", place, persistent=False)

    def forward(self, nodes: Tensor) -> Tensor:
        """What arrives at each target."""
        sources, targets, channels = self._shape
        blocks = self.weight.new_zeros(sources * targets, channels, channels)
        blocks = blocks.index_copy(0, self._place, self.weight)
        matrix = blocks.view(sources, targets, channels, channels).transpose(1, 2).flatten(2).flatten(0, 1)
        return (nodes.flatten(1) @ matrix).view(-1, targets, channels)


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
        """What arrives; mask (B, T or 1, L): which balls each node hears; 0 where it hears none."""
        targets, heads, depth = self.attention.shape
        spoken = self.source(balls).view(*balls.shape[:2], targets, heads, depth)
        heard = self.target(nodes).view(-1, 1, targets, heads, depth)
        scores = (F.leaky_relu(spoken + heard, _SLOPE) * self.attention).sum(-1)
        allowed = mask.transpose(1, 2).unsqueeze(-1)
        weights = masked_softmax(scores, allowed.float(), 1) * allowed
        return (weights.to(spoken.dtype)[..., None] * spoken).sum(1).flatten(2)


class GapAttention(nn.Module):
    """R TransformerConvs between balls with one number on each edge: (B, L, C) -> (B, L, C), their sum, less roots."""

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

    def forward(self, balls: Tensor, allowed: Tensor, number: Tensor, own_number: Tensor) -> Tensor:
        """What arrives, by Edges' masks and numbers; a number adds its multiple of `edge` to keys and values."""
        relations, heads, depth = self.edge.shape

        def by_head(layer: nn.Module) -> Tensor:
            return layer(balls).view(*balls.shape[:2], relations, heads, depth).permute(0, 2, 3, 1, 4)

        query, key, value = by_head(self.query) / math.sqrt(depth), by_head(self.key), by_head(self.value)
        along = (query * self.edge[:, :, None]).sum(-1, keepdim=True)
        scores = product(query, key.transpose(-1, -2)) + along * number
        weights = masked_softmax(scores, allowed, -1)
        mean = (weights * number).sum(-1, keepdim=True) + own_number
        # A ball that nobody speaks to hears nothing; its weights are those of an empty softmax.
        heard = allowed.amax(-1, keepdim=True)
        arrived = (product(weights.to(value.dtype), value) + mean * self.edge[:, :, None]) * heard
        return arrived.sum(1).transpose(1, 2).flatten(2)


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

    def forward(self, balls: Tensor, order: Tensor, inverse: Tensor, window: Tensor) -> Tensor:
        """What arrives, by Edges' orders and window: sorted by matchup, the balls that one hears stand before it."""
        (heads, depth), (count, length, span) = self.attention.shape, window.shape
        ranked = _Reordered.apply(balls, order, inverse)
        spoken = F.pad(self.source(ranked), (0, 0, span, 0)).unfold(1, span, 1)[:, :length].transpose(2, 3)
        scores = F.leaky_relu(spoken + self.target(ranked)[:, :, None], _SLOPE) @ self._by_head()
        allowed = window[..., None].float()
        weights = (masked_softmax(scores, allowed, 2) * allowed).to(spoken.dtype)
        spread = weights[..., None].expand(-1, -1, -1, -1, depth).reshape(count, length, span, heads * depth)
        return _Reordered.apply((spread * spoken).sum(2), inverse, order)

    def _by_head(self) -> Tensor:
        """(C, H) the attention vectors, each in the rows of its head."""
        heads = self.attention.shape[0]
        return (self.attention[:, :, None] * torch.eye(heads, device=self.attention.device)[:, None]).flatten(0, 1)


class _Reordered(torch.autograd.Function):
    """Balls in another order. Its gradient is a gather, too; PyTorch's own would add in the order of arrival."""

    @staticmethod
    def forward(ctx, balls, order, inverse):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        ctx.save_for_backward(inverse)
        return balls.gather(1, order[..., None].expand_as(balls))

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        (inverse,) = ctx.saved_tensors
        return gradient.gather(1, inverse[..., None].expand_as(gradient)), None, None


def masked_softmax(scores: Tensor, allowed: Tensor, axis: int) -> Tensor:
    """Softmax over what is allowed (1 or 0), in fp32; where nothing is, over everything."""
    # Added instead of chosen: on a CPU that is 15 times faster, on a GPU the same.
    return (scores.float() + (allowed - 1.0) * -_NEVER).softmax(axis)


def glorot(weight: Tensor, inputs: int, outputs: int) -> None:
    """Uniform, as PyTorch Geometric begins."""
    bound = math.sqrt(6.0 / (inputs + outputs))
    nn.init.uniform_(weight, -bound, bound)
