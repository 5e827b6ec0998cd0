"""Encodes features and ids to the initial vector of each node. B: samples, L: balls, C: channels."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.compute.ops.dropout import NoiseDropout, bernoulli, salt_of
from lockstep.compute.ops.layer_norm import LayerNorm
from lockstep.workloads.cricket.columns import (
    BALL_FEATURES,
    CAREER_COLUMNS,
    CAREER_WIDTH,
    ENTITIES,
    ROLES,
    STATE_COLUMNS,
    STATE_WIDTH,
)
from lockstep.workloads.cricket.data.samples import Samples
from lockstep.workloads.cricket.network.graph import CONTEXT
from lockstep.workloads.cricket.network.operators import NodeLinear, NodeNorm

PLACE_WIDTH, ROLE_WIDTH = 32, 16
"""Embedding widths: of venues and teams, and of roles and a player's team."""
_SPREAD = 0.02
"""Standard deviation of initial embeddings."""
_LEAST, _MOST = 1e-3, 8.0
"""Smallest standard deviation that features are divided by, and the bound that they are clipped to."""
_PLAYERS = ("striker_identity", "nonstriker_identity", "bowler_identity")


@dataclass(frozen=True)
class Vocabulary:
    """Numbers of venues, teams and players, including the unknown one of each."""

    venues: int
    teams: int
    players: int


@dataclass(frozen=True)
class Scales:
    """Mean and standard deviation of every feature over the training samples."""

    state_mean: Tensor
    state_deviation: Tensor
    career_mean: Tensor
    career_deviation: Tensor


class Scaling(nn.Module):
    """Standardises features; mean and standard deviation are buffers, stored with the weights."""

    def __init__(self, scales: Scales | None) -> None:
        super().__init__()
        self.state_mean: Tensor
        self.state_deviation: Tensor
        self.career_mean: Tensor
        self.career_deviation: Tensor
        # Without scales, features are only clipped.
        found = scales or Scales(
            torch.zeros(STATE_WIDTH), torch.ones(STATE_WIDTH), torch.zeros(CAREER_WIDTH), torch.ones(CAREER_WIDTH)
        )
        for name, value in vars(found).items():
            # A nearly constant feature must not become huge in the rare sample where it differs.
            self.register_buffer(name, value.clamp(min=_LEAST) if "deviation" in name else value)

    def forward(self, samples: Samples) -> Samples:
        """Standardise the samples; outliers are clipped to a few standard deviations."""
        state = (samples.state - self.state_mean) / self.state_deviation
        career = (samples.career - self.career_mean) / self.career_deviation
        return replace(samples, state=state.clamp(-_MOST, _MOST), career=career.clamp(-_MOST, _MOST))


class Embeddings(nn.Module):
    """Embeddings of venues, teams, players and roles. Id 0 is the unknown one; its vector is always 0."""

    def __init__(self, vocabulary: Vocabulary, player_width: int, id_dropout: float) -> None:
        super().__init__()
        self.venue = _embedding(vocabulary.venues, PLACE_WIDTH)
        self.team = _embedding(vocabulary.teams, PLACE_WIDTH)
        self.player = _embedding(vocabulary.players, player_width)
        self.player_team = _embedding(vocabulary.teams, ROLE_WIDTH)
        self.role = _embedding(len(ROLES), ROLE_WIDTH)
        self._id_dropout = id_dropout

    def hide(self, kind: str, ids: Tensor, noise: Tensor | None) -> Tensor:
        """Replace random ids by the unknown one; within a sample an id is hidden everywhere or nowhere."""
        if noise is None or not self._id_dropout:
            return ids
        # One bit for each (sample, id): depends on the id's value, not on where it occurs.
        word = noise.view(-1, *[1] * (ids.dim() - 1))
        return ids.masked_fill(bernoulli(word, ids.to(torch.int32), salt_of(f"id of a {kind}"), self._id_dropout), 0)


class ContextEncoder(nn.Module):
    """The nineteen context nodes: samples -> (B, N, C)."""

    def __init__(self, embeddings: Embeddings, channels: int, dropout: float) -> None:
        super().__init__()
        nodes = len(CONTEXT)
        player_width = embeddings.player.embedding_dim
        self.state = nn.Parameter(torch.empty(STATE_WIDTH, channels))
        nn.init.normal_(self.state, std=0.3)
        careers = {node: cut.stop - cut.start for node, cut in CAREER_COLUMNS.items()}
        extra = {"venue": PLACE_WIDTH, "batting_team": PLACE_WIDTH, "bowling_team": PLACE_WIDTH}
        extra |= dict.fromkeys(_PLAYERS, player_width + 2 * ROLE_WIDTH)
        self.entities = nn.ModuleDict(
            {node: nn.Linear(careers[node] + extra[node], channels, bias=False) for node in careers}
        )
        self.bias = nn.Parameter(torch.zeros(nodes, channels))
        self.first_norm = NodeNorm(nodes, channels)
        self.dropout = NoiseDropout(dropout, "context encoder")
        self.last = NodeLinear(nodes, channels, channels)
        self.last_norm = NodeNorm(nodes, channels)
        # Not persistent: a constant of the layout, which a checkpoint need not store.
        member = torch.zeros(len(STATE_COLUMNS), STATE_WIDTH)
        for number, columns in enumerate(STATE_COLUMNS.values()):
            member[number, columns] = 1.0
        self._member: Tensor
        self.register_buffer("_member", member, persistent=False)

    def forward(self, samples: Samples, embeddings: Embeddings, noise: Tensor | None) -> Tensor:
        """Encode every node from its own features."""
        # Each feature belongs to exactly one node, so one matrix holds the weights of all nodes.
        states = (samples.state[:, None] * self._member) @ self.state
        found = dict(zip(STATE_COLUMNS, states.unbind(1), strict=True))
        for node, features in self._entity_features(samples, embeddings, noise).items():
            found[node] = self.entities[node](features)
        first = torch.stack([found[node] for node in CONTEXT], 1) + self.bias
        hidden = self.dropout(F.gelu(self.first_norm(first)), noise)
        return self.last_norm(self.last(hidden))

    def _entity_features(self, samples: Samples, tables: Embeddings, noise: Tensor | None) -> dict[str, Tensor]:
        ids = dict(zip(ENTITIES, samples.ids.unbind(1), strict=True))
        venue = tables.hide("venue", ids["venue"], noise)
        teams = {name: tables.hide("team", ids[name], noise) for name in ("batting_team", "bowling_team")}
        features = {
            "venue": [tables.venue(venue)],
            **{name: [tables.team(team)] for name, team in teams.items()},
        }
        for number, node in enumerate(_PLAYERS):
            player = tables.hide("player", ids[node.removesuffix("_identity")], noise)
            team = teams["bowling_team" if node == "bowler_identity" else "batting_team"]
            role = tables.role(samples.roles[:, number])
            features[node] = [tables.player(player), tables.player_team(team), role]
        return {
            node: torch.cat([*parts, samples.career[:, CAREER_COLUMNS[node]]], 1) for node, parts in features.items()
        }


class BallEncoder(nn.Module):
    """The earlier balls: samples -> (B, L, C)."""

    def __init__(self, embeddings: Embeddings, channels: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(len(BALL_FEATURES) + 2 * embeddings.player.embedding_dim, channels)
        self.first_norm = LayerNorm(channels)
        self.dropout = NoiseDropout(dropout, "ball encoder")
        self.last = nn.Linear(channels, channels)
        self.last_norm = LayerNorm(channels)

    def forward(self, samples: Samples, embeddings: Embeddings, noise: Tensor | None) -> Tensor:
        """Encode every ball from its features, its bowler and its batter."""
        people = embeddings.player(embeddings.hide("player", samples.ball_ids[..., :2], noise)).flatten(2)
        hidden = F.gelu(self.first_norm(self.first(torch.cat([samples.ball, people], -1))))
        return self.last_norm(self.last(self.dropout(hidden, noise)))


def _embedding(rows: int, width: int) -> nn.Embedding:
    table = nn.Embedding(rows, width, padding_idx=0)
    nn.init.normal_(table.weight, std=_SPREAD)
    with torch.no_grad():
        table.weight[0] = 0.0
    return table
