"""What is learned from matches about players, teams and venues; used for other matches only, so no outcome leaks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lockstep.compute.device_array import array_of, look_up
from lockstep.workloads.cricket.columns import ENTITIES
from lockstep.workloads.cricket.features.contexts import Cells, contexts, phase_of_over
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.roles import infer_roles, spin_share
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.skills import CLASSES, Effect, fit_effects

COUNTED = ("venue", "batting_team", "bowling_team", "striker", "bowler")
"""Entities whose outcomes are counted and whose effects are fitted; a non-striker is described as a batter."""
_STIFFNESS: dict[str, tuple[float, ...]] = {
    "over": (11, 30, 120, 36, 67, 22, 15),
    "restrictions": (10, 190, 26, 220, 40, 47, 270),
    "faced": (31, 450, 170, 320, 22, 4, 400),
    "position": (43, 820, 3000, 320, 310, 46, 740),
    "required": (74, 1300, 420, 21, 510, 24, 23),
    "ball": (950, 1300, 3000, 160, 3000, 370, 490),
    "free_hit": (3000, 3000, 13, 1500, 11, 2, 1),
    "year": (1500, 3000, 2200, 240, 3000, 23, 3000),
    "venue": (110, 1500, 20, 5, 37, 12, 870),
    "batting_team": (7, 430, 200, 43, 44, 6, 14),
    "bowling_team": (40, 3000, 47, 130, 120, 130, 250),
    "striker": (190, 200, 130, 43, 130, 5, 73),
    "bowler": (160, 390, 200, 44, 67, 37, 180),
}
"""Initial shrinkage of each effect, by outcome; larger if its members are more alike.

These are the values that the fit arrived at on 2,436 international matches, so that it needs few sweeps.
"""
_DETAIL = (280.0, 330.0, 160.0, 80.0, 150.0, 65.0, 150.0)
"""The same for the effects of a player, team or venue in one phase, in one year or against one type of bowling."""


@dataclass(frozen=True)
class CareerInputs:
    """Deliveries with everything that careers are computed from: entity ids, discretised context and phase."""

    scoreboard: Scoreboard
    people: np.ndarray
    """Player id of each of the scorebook's people; the last entry is for nobody (-1)."""
    ids: np.ndarray
    """(N, 6) int64: ids of ENTITIES."""
    cells: Cells
    phase: np.ndarray

    @staticmethod
    def of(scoreboard: Scoreboard, index: EntityIndex) -> "CareerInputs":
        """The deliveries of a scoreboard, with ids by this index."""
        return CareerInputs(
            scoreboard,
            index.people(scoreboard.book),
            index.ids(scoreboard.book),
            contexts(scoreboard),
            phase_of_over(scoreboard),
        )

    def of_entity(self, entity: str) -> np.ndarray:
        """(N,) ids of one of ENTITIES."""
        return self.ids[:, ENTITIES.index(entity)]


@dataclass(frozen=True)
class Knowledge:
    """Counts, effects, roles and bowling types by id; id 0 is unknown."""

    counts: dict[str, Tensor]
    """Entity -> (size, 7): count of each outcome."""
    effects: dict[str, Tensor]
    """Effect -> (size, 7) shifts of the log-odds; prior -> (7,)."""
    roles: Tensor
    """(players,) int64."""
    spin: Tensor
    """(players,) float: probability that each bowls spin."""

    @staticmethod
    def learn(inputs: CareerInputs, rows: np.ndarray, sizes: dict[str, int]) -> "Knowledge":
        """Learn from the deliveries in a mask."""
        players = sizes["player"]
        roles = infer_roles(inputs.scoreboard, inputs.people, rows, players)
        spin = torch.as_tensor(spin_share(inputs.scoreboard, inputs.people, rows, players))
        chosen = np.flatnonzero(rows)
        label = torch.as_tensor(inputs.scoreboard.label[chosen])
        effects = [
            Effect(name, torch.as_tensor(member), size, _STIFFNESS.get(name, _DETAIL))
            for name, member, size in members(inputs, spin, sizes, chosen)
        ]
        counts = {}
        for entity, size in entity_sizes(sizes).items():
            flat = torch.as_tensor(inputs.of_entity(entity)[chosen]) * CLASSES + label
            counts[entity] = torch.bincount(flat, minlength=size * CLASSES).reshape(size, CLASSES)
            # Id 0 is unknown: whoever has it shares nothing with the others.
            counts[entity][0] = 0
        return Knowledge(counts, fit_effects(label, effects), torch.as_tensor(roles), spin)

    @property
    def device(self) -> torch.device:
        """Where all of it is."""
        return self.roles.device

    def to(self, device: torch.device) -> "Knowledge":
        """The same on another device."""
        return Knowledge.from_tensors({name: value.to(device) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, for storage."""
        parts = {f"count.{name}": value for name, value in self.counts.items()}
        parts |= {f"effect.{name}": value for name, value in self.effects.items()}
        return parts | {"roles": self.roles, "spin": self.spin}

    @staticmethod
    def from_tensors(tensors: dict[str, Tensor]) -> "Knowledge":
        """Inverse of `tensors`."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        return Knowledge(part("count."), part("effect."), tensors["roles"], tensors["spin"])


def entity_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """How many ids each of COUNTED has."""
    kind = {"venue": "venue", "batting_team": "team", "bowling_team": "team"}
    return {entity: sizes[kind.get(entity, "player")] for entity in COUNTED}


def members(
    inputs: CareerInputs, spin: Tensor, sizes: dict[str, int], rows: np.ndarray
) -> Sequence[tuple[str, np.ndarray, int]]:
    """Every effect: its name, the member that each row belongs to, and the number of members; in fitting order."""
    phase, (year, years) = inputs.phase[rows], inputs.cells["year"]
    ids = {entity: inputs.of_entity(entity)[rows] for entity in COUNTED}
    spins = (look_up(array_of(spin), ids["bowler"]) > 0.5).astype(np.int64)
    found = [(name, cell[rows], size) for name, (cell, size) in inputs.cells.items()]
    for entity, size in entity_sizes(sizes).items():
        found.append((entity, ids[entity], size))
        found.append((f"{entity}_year", ids[entity] * years + year[rows], size * years))
    for entity in ("striker", "bowler"):
        found.append((f"{entity}_phase", ids[entity] * 3 + phase, sizes["player"] * 3))
    found.append(("striker_type", ids["striker"] * 2 + spins, sizes["player"] * 2))
    return found
