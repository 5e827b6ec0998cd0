"""The network: encoders, rounds of message passing, and a head on the query's vector. B: samples, C: channels."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.compute.random import derive_seed
from lockstep.workloads.cricket.columns import STATE_COLUMNS
from lockstep.workloads.cricket.data.samples import Samples
from lockstep.workloads.cricket.network.edges import Edges, edges_of
from lockstep.workloads.cricket.network.encoders import (
    BallEncoder,
    ContextEncoder,
    Embeddings,
    Scales,
    Scaling,
    Vocabulary,
)
from lockstep.workloads.cricket.network.graph import BALL_RELATIONS, CONTEXT, OTHER_BALL_RELATIONS, reads_balls
from lockstep.workloads.cricket.network.layers import BallLayer, ContextLayer, Nodes, QueryLayer
from lockstep.workloads.cricket.network.variants import (
    Film,
    Head,
    InningsHeads,
    MatchupReadout,
    Variant,
    state_of,
)

_GOLDEN = 0x9E3779B9
"""2**32 divided by the golden ratio, as an odd number: its multiples are all different, so members share no noise."""


@dataclass(frozen=True)
class Sizes:
    """Size and variant of the network."""

    hidden: int
    layers: int
    heads: int
    dropout: float
    id_dropout: float
    player_width: int
    kept: frozenset[str]
    """Relations that are computed."""
    variant: Variant


class Round(nn.Module):
    """One round of message passing; all nodes read the others' vectors from before the round."""

    def __init__(self, sizes: Sizes, number: int, last: bool) -> None:
        """`last`: update the query only, because the other nodes' vectors would not be read any more."""
        super().__init__()
        arguments = (sizes.hidden, sizes.heads, sizes.kept, sizes.dropout, f"round {number}")
        balls_exchange = reads_balls(sizes.kept) and sizes.kept & {*BALL_RELATIONS, *OTHER_BALL_RELATIONS}
        self.query = QueryLayer(*arguments)
        self.context = None if last else ContextLayer(*arguments)
        self.balls = BallLayer(*arguments) if balls_exchange and not last else None
        self.film: Film | None = None
        if sizes.variant.film:
            features = sum(STATE_COLUMNS[node].stop - STATE_COLUMNS[node].start for node in sizes.variant.film)
            # The query, all context nodes, and one entry that all balls share.
            nodes = 1 + (len(CONTEXT) if self.context is not None else 0) + (self.balls is not None)
            self.film = Film(features, nodes, sizes.hidden)

    def forward(self, nodes: Nodes, edges: Edges | None, condition: Tensor | None, noise: Tensor | None) -> Nodes:
        """All nodes after the round."""
        film = self.film(condition) if self.film is not None else None
        query = self.query(nodes, edges, _part(film, 0), noise)
        context, balls = nodes.context, nodes.balls
        if self.context is not None:
            context = self.context(nodes, edges, _part(film, slice(1, 1 + len(CONTEXT))), noise)
        if self.balls is not None:
            balls = self.balls(nodes.balls, edges, _part(film, slice(-1, None)), noise)
        return Nodes(context, query, balls)


def _part(film: Tensor | None, nodes: int | slice) -> Tensor | None:
    return None if film is None else film[:, nodes]


class CricketNetwork(nn.Module):
    """Samples -> logits of the outcomes (B, 7)."""

    def __init__(self, sizes: Sizes, vocabulary: Vocabulary, prior: Tensor, scales: Scales | None = None) -> None:
        """`prior`: frequency of each outcome, which the untrained network predicts; `scales`: of the features."""
        super().__init__()
        self._kept, self._film = sizes.kept, sizes.variant.film
        self.scaling = Scaling(scales)
        self.embeddings = Embeddings(vocabulary, sizes.player_width, sizes.id_dropout)
        self.context = ContextEncoder(self.embeddings, sizes.hidden, sizes.dropout)
        reads = reads_balls(sizes.kept)
        self.balls = BallEncoder(self.embeddings, sizes.hidden, sizes.dropout) if reads else None
        # The query has no features: it starts as a learned vector.
        self.query = nn.Parameter(torch.randn(sizes.hidden) * 0.02)
        last = sizes.layers - 1
        self.rounds = nn.ModuleList(Round(sizes, number, number == last) for number in range(sizes.layers))
        self.readout = MatchupReadout(sizes.hidden, sizes.dropout) if sizes.variant.matchup else None
        self.head: nn.Module
        if sizes.variant.innings:
            self.head = InningsHeads(sizes.hidden, prior, sizes.dropout)
        else:
            self.head = Head(sizes.hidden, sizes.hidden, prior, sizes.dropout, "head")

    def forward(self, samples: Samples, noise: Tensor | None) -> Tensor:
        """Logits; noise (B,) seeds dropout, None = no dropout."""
        samples = self.scaling(samples)
        context = self.context(samples, self.embeddings, noise)
        balls = self.balls(samples, self.embeddings, noise) if self.balls is not None else None
        edges = edges_of(samples, self._kept) if balls is not None else None
        condition = state_of(samples, self._film) if self._film else None
        # Not len(context): it would fix the batch size of an exported network.
        nodes = Nodes(context, self.query.expand(context.shape[0], -1), balls)
        for passing in self.rounds:
            nodes = passing(nodes, edges, condition, noise)
        vector = nodes.query
        if self.readout is not None:
            vector = self.readout(vector, nodes.context, noise)
        if isinstance(self.head, InningsHeads):
            return self.head(vector, samples, noise)
        return self.head(vector, noise)


class Ensemble(nn.Module):
    """An ensemble of networks: samples -> logits (B, K, 7). Each member has its own dropout noise."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, samples: Samples, noise: Tensor | None) -> Tensor:
        """The logits of each member."""
        logits = []
        for number, network in enumerate(self.networks):
            own = None if noise is None else (noise + number * _GOLDEN) & 0xFFFFFFFF
            logits.append(network(samples, own))
        return torch.stack(logits, 1)


def network(sizes: Sizes, members: int, vocabulary: Vocabulary, prior: Tensor, scales: Scales, seed: int) -> nn.Module:
    """Build the network with initial weights that depend on the seed alone; see CricketNetwork."""

    def member(number: int) -> CricketNetwork:
        # Layers draw initial weights from torch's global generator, whose state must not change for other code.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, f"network {number}"))
            return CricketNetwork(sizes, vocabulary, prior, scales)

    return member(0) if members == 1 else Ensemble([member(number) for number in range(members)])
