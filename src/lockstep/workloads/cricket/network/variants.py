"""What the model's variants add: FiLM by the match state, a matchup readout, and a head for each innings.

B: samples, N: nodes, C: channels.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.compute.ops.dropout import NoiseDropout
from lockstep.compute.ops.layer_norm import LayerNorm
from lockstep.workloads.cricket.columns import STATE_COLUMNS
from lockstep.workloads.cricket.data.samples import Samples
from lockstep.workloads.cricket.network.graph import CONTEXT

Name = Literal["base", "hybrid", "phase_modulated", "innings_conditional", "full"]
_STRIKER, _NONSTRIKER, _BOWLER = (
    CONTEXT.index(node) for node in ("striker_identity", "nonstriker_identity", "bowler_identity")
)
_NONSTRIKER_WEIGHT = 0.1
"""The most that the non-striker can add to a matchup, as a fraction."""


@dataclass(frozen=True)
class Variant:
    """What a variant adds to the base."""

    matchup: bool = False
    film: tuple[str, ...] = ()
    """State nodes whose features modulate every node."""
    innings: bool = False


VARIANTS: dict[str, Variant] = {
    "base": Variant(),
    "hybrid": Variant(matchup=True),
    "phase_modulated": Variant(matchup=True, film=("phase_state",)),
    "innings_conditional": Variant(matchup=True, innings=True),
    "full": Variant(matchup=True, film=("phase_state", "chase_state", "wicket_buffer"), innings=True),
}


def state_of(samples: Samples, nodes: tuple[str, ...]) -> Tensor:
    """The features of some state nodes: (B, their number)."""
    return torch.cat([samples.state[:, STATE_COLUMNS[node]] for node in nodes], 1)


class Film(nn.Module):
    """Factor and shift for each of N nodes from a condition: (B, F) -> (B, N, 2, C); initially 1 and 0."""

    def __init__(self, features: int, nodes: int, channels: int) -> None:
        super().__init__()
        self._nodes, self._channels = nodes, channels
        self.first = nn.Linear(features, channels)
        self.last = nn.Linear(channels, nodes * 2 * channels)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        with torch.no_grad():
            self.last.bias.view(nodes, 2, channels)[:, 0] = 1.0

    def forward(self, condition: Tensor) -> Tensor:
        """Factor and shift of each node."""
        return self.last(F.gelu(self.first(condition))).view(-1, self._nodes, 2, self._channels)


class MatchupReadout(nn.Module):
    """The query, combined with an interaction of striker and bowler: (B, C), (B, N, C) -> (B, C)."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.pair = nn.Linear(2 * channels, channels)
        self.pair_norm = LayerNorm(channels)
        self.dropout = NoiseDropout(dropout, "matchup readout")
        self.pair_last = nn.Linear(channels, channels)
        self.lend = nn.Linear(channels, channels // 4)
        self.lend_last = nn.Linear(channels // 4, channels)
        self.join = nn.Linear(2 * channels, channels)
        self.join_norm = LayerNorm(channels)

    def forward(self, query: Tensor, context: Tensor, noise: Tensor | None) -> Tensor:
        """Combine; the context is that before the last round, which updates the query only."""
        striker, nonstriker, bowler = (context[:, node] for node in (_STRIKER, _NONSTRIKER, _BOWLER))
        hidden = F.gelu(self.pair_norm(self.pair(torch.cat([striker, bowler], 1))))
        matchup = self.pair_last(self.dropout(hidden, noise))
        matchup = matchup * (1.0 + _NONSTRIKER_WEIGHT * torch.sigmoid(self.lend_last(F.gelu(self.lend(nonstriker)))))
        return F.gelu(self.join_norm(self.join(torch.cat([matchup, query], 1))))


class Head(nn.Module):
    """Maps a vector to logits: (B, I) -> (B, 7)."""

    def __init__(self, inputs: int, channels: int, prior: Tensor, dropout: float, place: str) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Linear(inputs, channels), LayerNorm(channels)
        self.second, self.second_norm = nn.Linear(channels, channels // 2), LayerNorm(channels // 2)
        self.last = nn.Linear(channels // 2, len(prior))
        self.dropouts = nn.ModuleList(NoiseDropout(dropout, f"{place} {number}") for number in range(2))
        # The bias makes the untrained network predict the frequency of each outcome.
        nn.init.zeros_(self.last.weight)
        with torch.no_grad():
            self.last.bias.copy_(prior.clamp(min=1e-4).log())

    def forward(self, vector: Tensor, noise: Tensor | None) -> Tensor:
        """Logits."""
        hidden = self.dropouts[0](F.gelu(self.first_norm(self.first(vector))), noise)
        hidden = self.dropouts[1](F.gelu(self.second_norm(self.second(hidden))), noise)
        return self.last(hidden)


class InningsHeads(nn.Module):
    """One head for the first innings, and one that also sees the chase for the later ones."""

    def __init__(self, channels: int, prior: Tensor, dropout: float) -> None:
        super().__init__()
        chase = STATE_COLUMNS["chase_state"].stop - STATE_COLUMNS["chase_state"].start
        self.setting = Head(channels, channels, prior, dropout, "first innings")
        self.chasing = Head(channels + chase, channels, prior, dropout, "later innings")

    def forward(self, vector: Tensor, samples: Samples, noise: Tensor | None) -> Tensor:
        """Logits of the innings' head."""
        # Both heads are computed and one is selected: a CUDA graph must not depend on which samples are which.
        chasing = self.chasing(torch.cat([vector, state_of(samples, ("chase_state",))], 1), noise)
        return torch.where(samples.innings[:, None] == 0, self.setting(vector, noise), chasing)
