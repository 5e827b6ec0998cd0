"""Edges between balls, as masks. B: samples, L: balls, R: attention relations, P: balls read of a matchup.

A mask is indexed [target, source]. Only sources need to be present: what padding receives is never read.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lockstep.workloads.cricket.data.samples import Samples
from lockstep.workloads.cricket.network.graph import (
    BALL_RELATIONS,
    DISTANT_STEP,
    INFORMING_BALLS,
    MATCHUP_BALLS,
    MEDIUM_GAP,
    PLAYER_RELATIONS,
    RECENT_GAP,
    SCALES,
)

_BOWLER, _BATTER, _NONSTRIKER = 0, 1, 2
_FAR = 1e4
"""Subtracted from masked scores, so that softmax gives 0; representable in half precision."""


@dataclass(frozen=True)
class Edges:
    """The edges that start at balls, for a batch of samples."""

    present: Tensor
    """(B, L) whether there is a ball."""
    allowed: Tensor
    """(B, R, L, L) whether there is an edge of the attention relations."""
    number: Tensor
    """(R, L, L) edge feature, for relations where it depends on the gap alone; 0 for same_over."""
    own_number: Tensor
    """(B, R, L) edge feature shared by all edges into a ball: same_over's; 0 for the others."""
    distant: Tensor
    """(L, L) 1 where a source is further back than the medium gap, by a multiple of DISTANT_STEP balls."""
    order: Tensor
    """(B, L) the balls sorted by matchup, within a matchup by time."""
    rank: Tensor
    """(B, L) in that order: how many balls of its matchup precede each."""
    players: Tensor
    """(B, 3, L) the balls of the current striker, non-striker and bowler, in the order of PLAYER_RELATIONS."""
    informing: Tensor
    """(B, 1, I) which of the last balls are present."""

    @cached_property
    def score_mask(self) -> Tensor:
        """(B, R, 1, L, L) added to the scores of the attention relations; the axis of size 1 broadcasts over heads."""
        return additive_mask(self.allowed).unsqueeze(2)

    @cached_property
    def has_incoming(self) -> Tensor:
        """(B, R, 1, L, 1) 1 if a ball has any incoming edge of the relation."""
        return self.allowed.any(-1).float()[:, :, None, :, None]

    @cached_property
    def inverse(self) -> Tensor:
        """(B, L) position of each ball in the order by matchup."""
        return torch.argsort(self.order, dim=1)

    @cached_property
    def window(self) -> Tensor:
        """(B, L, P) in the order by matchup: whether the ball P - p positions before is of the same matchup."""
        span = min(MATCHUP_BALLS, self.rank.shape[1])
        return self.rank[..., None] >= torch.arange(span, 0, -1, device=self.rank.device)


def edges_of(samples: Samples, kept: frozenset[str]) -> Edges:
    """The edges of a batch, for the relations in `kept`."""
    length, device = samples.present.shape[1], samples.present.device
    position = torch.arange(length, device=device)
    gap = position[:, None] - position
    relations = [relation for relation in BALL_RELATIONS if relation in kept]
    # Functions, so that masks of relations that were dropped are never computed.
    allowed = {
        "recent_precedes": lambda: (gap >= 1) & (gap <= RECENT_GAP),
        "medium_precedes": lambda: (gap > RECENT_GAP) & (gap <= MEDIUM_GAP),
        "same_bowler": lambda: _same(samples.ball_people[..., _BOWLER]) & (gap != 0),
        "same_batsman": lambda: _same(samples.ball_people[..., _BATTER]) & (gap != 0),
        "same_over": lambda: _same(samples.over) & (gap > 0),
    }
    every = (len(samples.present), length, length)
    masks = [allowed[relation]().expand(every) & samples.present[:, None, :] for relation in relations]
    order, rank = _matchups(samples)
    return Edges(
        present=samples.present,
        allowed=torch.stack(masks, 1) if masks else samples.present.new_zeros(len(samples), 0, length, length),
        number=_numbers(relations, gap),
        own_number=_own_numbers(relations, samples.ball_in_over),
        distant=((gap > MEDIUM_GAP) & (gap % DISTANT_STEP == 0)).float(),
        order=order,
        rank=rank,
        players=_of_players(samples),
        informing=samples.present[:, None, -INFORMING_BALLS:],
    )


def _same(key: Tensor) -> Tensor:
    return key[:, :, None] == key[:, None, :]


def _numbers(relations: list[str], gap: Tensor) -> Tensor:
    """(R, L, L) gaps, scaled; the medium ones count from the end of the recent ones."""
    rows = []
    for relation in relations:
        beyond = RECENT_GAP if relation == "medium_precedes" else 0
        scaled = (gap.abs() - beyond) / SCALES[relation]
        rows.append(torch.zeros_like(scaled) if relation == "same_over" else scaled)
    return torch.stack(rows) if rows else gap.new_zeros(0, *gap.shape, dtype=torch.float32)


def _own_numbers(relations: list[str], ball_in_over: Tensor) -> Tensor:
    # Overs with wides and no-balls have more than six balls.
    place = (ball_in_over / SCALES["same_over"]).clamp(max=1.0)
    rows = [place if relation == "same_over" else torch.zeros_like(place) for relation in relations]
    return torch.stack(rows, 1) if rows else place.new_zeros(0)


def _matchups(samples: Samples) -> tuple[Tensor, Tensor]:
    """Balls sorted by (bowler, batter), and how many of the same pair precede each."""
    people, length = samples.ball_people, samples.present.shape[1]
    # Indices of people are far below 2^31, so a pair fits in int64. Padding gets pair -1 and rank 0: no edges.
    pair = ((people[..., _BOWLER] << 31) + people[..., _BATTER]).masked_fill(~samples.present, -1)
    ranked, order = torch.sort(pair, dim=1, stable=True)
    place = torch.arange(length, device=pair.device).expand_as(pair)
    begins = torch.nn.functional.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
    # The running maximum of where matchups begin is where the ball's own matchup begins.
    rank = place - torch.where(begins, place, 0).cummax(1).values
    return order, rank.masked_fill(ranked < 0, 0)


def _of_players(samples: Samples) -> Tensor:
    """(B, 3, L) in the order of PLAYER_RELATIONS."""
    bowler, batter, nonstriker = samples.ball_people.unbind(-1)
    now = samples.people
    masks = {
        "faced_by": batter == now[:, _BATTER, None],
        "partnered_by": (batter == now[:, _NONSTRIKER, None]) | (nonstriker == now[:, _NONSTRIKER, None]),
        "bowled_by": bowler == now[:, _BOWLER, None],
    }
    return torch.stack([masks[relation] for relation in PLAYER_RELATIONS], 1) & samples.present[:, None, :]


def additive_mask(allowed: Tensor) -> Tensor:
    """Additive mask for a softmax: 0 where allowed, a large negative number elsewhere."""
    # Adding is 15 times faster than `where` on a CPU.
    return (allowed.float() - 1.0) * _FAR
