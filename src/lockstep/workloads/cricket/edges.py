"""Which balls speak to which, as masks. B: samples, L: balls, R: attention relations, P: balls heard of a matchup.

A mask is indexed [target, source]. Only sources need to be present: what padding receives, nobody reads.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lockstep.workloads.cricket.graph import (
    BALL_RELATIONS,
    DISTANT_STEP,
    INFORMING_BALLS,
    MATCHUP_BALLS,
    MEDIUM_GAP,
    PLAYER_RELATIONS,
    RECENT_GAP,
    SCALES,
)
from lockstep.workloads.cricket.operators import barrier
from lockstep.workloads.cricket.samples import Samples

_BOWLER, _BATTER, _NONSTRIKER = 0, 1, 2


@dataclass(frozen=True)
class Edges:
    """The edges that start at balls, for a batch of samples."""

    present: Tensor
    """(B, L) whether there is a ball."""
    allowed: Tensor
    """(B, R, L, L) whether there is an edge of the attention relations."""
    number: Tensor
    """(R, L, L) the number on each edge, where it depends on the gap alone; 0 for same_over."""
    own_number: Tensor
    """(B, R, L) the number that all edges into a ball share: same_over's; 0 for the others."""
    distant: Tensor
    """(L, L) 1 where a source lies in whole overs beyond the medium gap before its target."""
    order: Tensor
    """(B, L) the balls sorted by matchup, within a matchup by time."""
    rank: Tensor
    """(B, L) in that order: how many balls of its matchup stand before each."""
    players: Tensor
    """(B, 3, L) the balls of today's striker, non-striker and bowler, as PLAYER_RELATIONS has them."""
    informing: Tensor
    """(B, 1, I) which of the last balls are there."""

    @cached_property
    def barred(self) -> Tensor:
        """(B, R, 1, L, L) 0 for an edge of the attention relations, else a barrier; the axis of one is for heads."""
        return barrier(self.allowed).unsqueeze(2)

    @cached_property
    def heard(self) -> Tensor:
        """(B, R, 1, L, 1) 1 where a ball has any such edge."""
        return self.allowed.any(-1).float()[:, :, None, :, None]

    @cached_property
    def inverse(self) -> Tensor:
        """(B, L) where each ball stands in the order by matchup."""
        return torch.argsort(self.order, dim=1)

    @cached_property
    def window(self) -> Tensor:
        """(B, L, P) in the order by matchup: whether the ball P - p places before is of the same one."""
        span = min(MATCHUP_BALLS, self.rank.shape[1])
        return self.rank[..., None] >= torch.arange(span, 0, -1, device=self.rank.device)


def edges_of(samples: Samples, kept: frozenset[str]) -> Edges:
    """The edges of a batch, of the relations that are kept."""
    length, device = samples.present.shape[1], samples.present.device
    position = torch.arange(length, device=device)
    gap = position[:, None] - position
    relations = [relation for relation in BALL_RELATIONS if relation in kept]
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
    place = (ball_in_over / SCALES["same_over"]).clamp(max=1.0)
    rows = [place if relation == "same_over" else torch.zeros_like(place) for relation in relations]
    return torch.stack(rows, 1) if rows else place.new_zeros(0)


def _matchups(samples: Samples) -> tuple[Tensor, Tensor]:
    """Balls sorted by (bowler, batter), and how many of the same two stand before each."""
    people, length = samples.ball_people, samples.present.shape[1]
    # Numbers of people are far below 2^31; padding is a matchup of nobody, in which nobody is heard.
    pair = ((people[..., _BOWLER] << 31) + people[..., _BATTER]).masked_fill(~samples.present, -1)
    ranked, order = torch.sort(pair, dim=1, stable=True)
    place = torch.arange(length, device=pair.device).expand_as(pair)
    begins = torch.nn.functional.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
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
