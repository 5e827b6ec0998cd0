"""What moved a forecast: the change of each outcome's log-odds against the same ball without a group of features.

Without a player, team or venue: as if training had never seen them. Without a part of the match's state: as if it were
at its average over training. The additive model's forecast, itself a feature, is computed without the group as well.
Groups overlap in what they tell (a chase shows in the score, too), so their changes do not add up to the whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from lockstep.workloads.cricket.columns import (
    CAREER_COLUMNS,
    ENTITIES,
    PRIOR_COLUMNS,
    STATE_COLUMNS,
    STATE_FEATURES,
)
from lockstep.workloads.cricket.data.samples import Samples

_TODAY = ("match_today_", "innings_today_", "today_")
_APART = (*_TODAY, "prior_")
"""Columns of a node that do not belong to its group: how today went, and the additive model."""
_PEOPLE = {"striker": 0, "nonstriker": 1, "bowler": 2}
"""Columns of `roles`."""


@dataclass(frozen=True)
class Group:
    """Features that are taken away together."""

    nodes: tuple[str, ...] = ()
    """Node types whose state is replaced by its average."""
    entities: tuple[str, ...] = ()
    """Of ENTITIES, who become unknown."""
    effects: tuple[str, ...] = ()
    """Effects of the additive model that are left out."""


def _of(entity: str, *more: str) -> tuple[str, ...]:
    return (entity, f"{entity}_year", *(f"{entity}_{name}" for name in more))


GROUPS: Mapping[str, Group] = {
    "striker": Group(entities=("striker",), effects=_of("striker", "phase", "type")),
    "bowler": Group(entities=("bowler",), effects=_of("bowler", "phase")),
    "venue": Group(entities=("venue",), effects=_of("venue")),
    "teams": Group(entities=("batting_team", "bowling_team"), effects=(*_of("batting_team"), *_of("bowling_team"))),
    "score and stage": Group(
        nodes=("score_state", "phase_state", "time_pressure", "wicket_buffer"),
        effects=("over", "restrictions", "ball", "free_hit"),
    ),
    "chase": Group(nodes=("chase_state",), effects=("required",)),
    "striker's innings": Group(nodes=("striker_state",), effects=("faced", "position")),
    "bowler's spell": Group(nodes=("bowler_state",)),
    "partner": Group(nodes=("nonstriker_state", "partnership"), entities=("nonstriker",)),
    "momentum": Group(nodes=("batting_momentum", "bowling_momentum", "pressure_index", "dot_pressure")),
}
TODAY, BALLS = "today's surprises", "earlier balls"
"""Two more groups: how today deviates from what careers predict, and the balls, where the network reads them."""


def without_each(
    sample: Samples, prior: Tensor, shifts: Mapping[str, Tensor], state_mean: Tensor
) -> tuple[list[str], Samples]:
    """The sample (B = 1) without each group, one after the other, and the groups' names.

    `prior`: (7,) the additive model's log-odds; `shifts`: its effects (7,) by name; `state_mean`: (STATE_WIDTH,).
    """
    versions = {name: _without(sample, group, prior, shifts, state_mean) for name, group in GROUPS.items()}
    versions[TODAY] = replace(sample, state=_averaged(sample.state, state_mean, _today_columns()))
    if sample.present.any():
        versions[BALLS] = replace(sample, present=torch.zeros_like(sample.present))
    together = {
        field.name: torch.cat([getattr(version, field.name) for version in versions.values()])
        for field in fields(Samples)
    }
    return list(versions), Samples(**together)


def changes(whole: Tensor, without: Tensor) -> Tensor:
    """(groups, 7): how much each group raises each outcome's log-odds, from probabilities (7,) and (groups, 7)."""
    return torch.logit(whole.double(), eps=1e-6) - torch.logit(without.double(), eps=1e-6)


def _without(sample: Samples, group: Group, prior: Tensor, shifts: Mapping[str, Tensor], state_mean: Tensor) -> Samples:
    columns = [
        STATE_COLUMNS[node].start + place
        for node in group.nodes
        for place, name in enumerate(STATE_FEATURES[node])
        if not name.startswith(_APART)
    ]
    state = _averaged(sample.state, state_mean, columns)
    left = prior - sum((shifts[name] for name in group.effects), torch.zeros_like(prior))
    state[:, PRIOR_COLUMNS] = torch.log_softmax(left, 0)
    ids, career, roles = sample.ids.clone(), sample.career.clone(), sample.roles.clone()
    for entity in group.entities:
        ids[:, ENTITIES.index(entity)] = 0
        career[:, CAREER_COLUMNS[f"{entity}_identity" if entity in _PEOPLE else entity]] = 0
        if entity in _PEOPLE:
            roles[:, _PEOPLE[entity]] = 0
    return replace(sample, state=state, ids=ids, career=career, roles=roles)


def _averaged(state: Tensor, mean: Tensor, columns: list[int]) -> Tensor:
    state = state.clone()
    state[:, columns] = mean[columns]
    return state


def _today_columns() -> list[int]:
    return [
        STATE_COLUMNS[node].start + place
        for node, names in STATE_FEATURES.items()
        for place, name in enumerate(names)
        if name.startswith(_TODAY)
    ]
