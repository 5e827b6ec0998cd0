"""Message-passing layers of the graph. B: samples, N: context nodes, L: balls, C: channels."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.compute.ops.dropout import NoiseDropout
from lockstep.compute.ops.layer_norm import LayerNorm
from lockstep.workloads.cricket.network import graph
from lockstep.workloads.cricket.network.edges import Edges
from lockstep.workloads.cricket.network.graph import BALL_RELATIONS, CONTEXT, GROUPS, INFORMING_BALLS, PLAYER_RELATIONS
from lockstep.workloads.cricket.network.operators import (
    BallAttention,
    GapAttention,
    MatchupAttention,
    NodeNorm,
    SingleEdges,
    glorot,
)

_DYNAMICS = slice(len(CONTEXT) - len(GROUPS["dynamics"]), len(CONTEXT))


@dataclass
class Nodes:
    """The vectors of all nodes."""

    context: Tensor
    """(B, N, C)."""
    query: Tensor
    """(B, C)."""
    balls: Tensor | None
    """(B, L, C); None if no relation reads them."""


class ContextMessages(nn.Module):
    """conditions, relates_to and matchup: (B, N, C) -> (B, N, C)."""

    def __init__(self, channels: int, kept: frozenset[str]) -> None:
        super().__init__()
        groups = list(GROUPS.values())
        self._spans = [slice(CONTEXT.index(nodes[0]), CONTEXT.index(nodes[-1]) + 1) for nodes in groups]
        pairs = [(one, other) for one, relation, other in graph.context_pairs() if relation in kept - {"conditions"}]
        edges = [(CONTEXT.index(one), CONTEXT.index(other)) for one, other in pairs]
        self.across = SingleEdges(len(CONTEXT), edges, channels) if edges else None
        self.down = nn.ModuleList()
        if "conditions" in kept:
            # Each group is fully connected to the next, so one matrix holds all edges between two groups.
            for above, below in pairwise(groups):
                layer = nn.Linear(len(above) * channels, len(below) * channels, bias=False)
                glorot(layer.weight, channels, channels)
                self.down.append(layer)

    def forward(self, context: Tensor) -> Tensor:
        """Messages to each context node."""
        messages = torch.zeros_like(context)
        if len(self.down):
            # Nothing conditions the first group.
            parts = [torch.zeros_like(context[:, self._spans[0]])]
            for layer, above, below in zip(self.down, self._spans, self._spans[1:], strict=False):
                sent = layer(context[:, above].flatten(1))
                parts.append(sent.view(context.shape[0], below.stop - below.start, -1).to(context.dtype))
            messages = torch.cat(parts, 1)
        if self.across is not None:
            messages = messages + self.across(context.unbind(1)).transpose(0, 1)
        return messages


class BallMessages(nn.Module):
    """All seven relations between balls: (B, L, C) -> (B, L, C)."""

    def __init__(self, channels: int, heads: int, kept: frozenset[str]) -> None:
        super().__init__()
        relations = [relation for relation in BALL_RELATIONS if relation in kept]
        self.attention = GapAttention(len(relations), channels, heads) if relations else None
        self.matchup = MatchupAttention(channels, heads) if "same_matchup" in kept else None
        self.distant = nn.Linear(channels, channels, bias=False) if "distant_precedes" in kept else None
        # The root terms of TransformerConv and SAGE, and the biases of all seven.
        self.root = nn.Linear(channels, channels)
        for layer in (self.root, self.distant):
            if layer is not None:
                glorot(layer.weight, channels, channels)
        nn.init.zeros_(self.root.bias)

    def forward(self, balls: Tensor, edges: Edges) -> Tensor:
        """Messages to each ball."""
        messages = self.root(balls)
        if self.attention is not None:
            messages = messages + self.attention(balls, edges)
        if self.matchup is not None:
            messages = messages + self.matchup(balls, edges)
        if self.distant is not None:
            # SAGE's mean, over the sources that are present.
            present = edges.present.to(balls.dtype)
            total = edges.distant.to(balls.dtype) @ (balls * present[..., None])
            count = edges.distant @ edges.present.float()[..., None]
            messages = messages + self.distant(total / count.clamp(min=1.0).to(balls.dtype))
        return messages


class ContextLayer(nn.Module):
    """One round for the context nodes: add the messages of context nodes and balls, then normalise."""

    def __init__(self, channels: int, heads: int, kept: frozenset[str], dropout: float, place: str) -> None:
        super().__init__()
        self.messages = ContextMessages(channels, kept)
        self.players = [number for number, relation in enumerate(PLAYER_RELATIONS) if relation in kept]
        self.player_nodes = [CONTEXT.index(node) for node in PLAYER_RELATIONS.values()]
        reads, informs = graph.reads_balls(kept), "informs" in kept
        self.from_balls = BallAttention(len(self.players), channels, heads) if reads and self.players else None
        self.informs = BallAttention(len(GROUPS["dynamics"]), channels, heads) if reads and informs else None
        self.bias = nn.Parameter(torch.zeros(len(CONTEXT), channels))
        self.norm = NodeNorm(len(CONTEXT), channels)
        self.dropout = NoiseDropout(dropout, f"{place} context")

    def forward(self, nodes: Nodes, edges: Edges | None, film: Tensor | None, noise: Tensor | None) -> Tensor:
        """The context nodes after this round; film: (B, N, 2, C) factor and shift of each."""
        context = nodes.context + self.messages(nodes.context) + self.bias
        if nodes.balls is not None and edges is not None:
            context = context + self._from_balls(nodes.context, nodes.balls, edges)
        return self.dropout(modulate(self.norm(context), film), noise)

    def _from_balls(self, context: Tensor, balls: Tensor, edges: Edges) -> Tensor:
        messages = list(torch.zeros_like(context).unbind(1))
        if self.from_balls is not None:
            numbers = [self.player_nodes[number] for number in self.players]
            targets = torch.stack([context[:, number] for number in numbers], 1)
            sent = self.from_balls(balls, targets, torch.stack([edges.players[:, n] for n in self.players], 1))
            for number, message in zip(numbers, sent.unbind(1), strict=True):
                messages[number] = message
        if self.informs is not None:
            messages[_DYNAMICS] = self.informs(
                balls[:, -INFORMING_BALLS:], context[:, _DYNAMICS], edges.informing
            ).unbind(1)
        return torch.stack([message.to(context.dtype) for message in messages], 1)


class QueryLayer(nn.Module):
    """One round for the query: messages by the relations `attends` and `drives`."""

    def __init__(self, channels: int, heads: int, kept: frozenset[str], dropout: float, place: str) -> None:
        super().__init__()
        attends, drives, dynamics = "attends" in kept, "drives" in kept, len(GROUPS["dynamics"])
        self.attends = self._single(len(CONTEXT), channels) if attends else None
        self.drives = self._single(dynamics, channels) if drives else None
        self.from_balls = BallAttention(1, channels, heads) if attends and graph.reads_balls(kept) else None
        self.bias = nn.Parameter(torch.zeros(channels))
        self.norm = LayerNorm(channels)
        self.dropout = NoiseDropout(dropout, f"{place} query")

    @staticmethod
    def _single(nodes: int, channels: int) -> nn.Linear:
        # Single nodes need no attention (see operators), so all their edges are one matrix.
        layer = nn.Linear(nodes * channels, channels, bias=False)
        glorot(layer.weight, channels, channels)
        return layer

    def forward(self, nodes: Nodes, edges: Edges | None, film: Tensor | None, noise: Tensor | None) -> Tensor:
        """The query after this round: (B, C)."""
        query = nodes.query + self.bias
        if self.attends is not None:
            query = query + self.attends(nodes.context.flatten(1))
        if self.drives is not None:
            query = query + self.drives(nodes.context[:, _DYNAMICS].flatten(1))
        if self.from_balls is not None and nodes.balls is not None and edges is not None:
            query = query + self.from_balls(nodes.balls, nodes.query[:, None], edges.present[:, None]).squeeze(1)
        return self.dropout(modulate(self.norm(query), film), noise)


class BallLayer(nn.Module):
    """One round for the balls: messages between them."""

    def __init__(self, channels: int, heads: int, kept: frozenset[str], dropout: float, place: str) -> None:
        super().__init__()
        self.messages = BallMessages(channels, heads, kept)
        self.norm = LayerNorm(channels)
        self.dropout = NoiseDropout(dropout, f"{place} balls")

    def forward(self, balls: Tensor, edges: Edges, film: Tensor | None, noise: Tensor | None) -> Tensor:
        """The balls after this round: (B, L, C); film is the same for all of them."""
        return self.dropout(modulate(self.norm(balls + self.messages(balls, edges)), film), noise)


def modulate(value: Tensor, film: Tensor | None) -> Tensor:
    """FiLM: scale and shift; film is (..., 2, C) with factor and shift."""
    if film is None:
        return value
    factor, shift = film.unbind(-2)
    return value * factor + shift
