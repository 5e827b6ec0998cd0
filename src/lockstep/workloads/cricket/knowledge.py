"""What some matches teach about players, teams and venues; asked about deliveries of other matches only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lockstep.workloads.cricket.columns import ENTITIES
from lockstep.workloads.cricket.contexts import Cells, contexts, phase_of_over
from lockstep.workloads.cricket.entities import EntityIndex
from lockstep.workloads.cricket.ledger import Ledger
from lockstep.workloads.cricket.roles import infer_roles, spin_share
from lockstep.workloads.cricket.skills import CLASSES, Effect, fit_effects

COUNTED = ("venue", "batting_team", "bowling_team", "striker", "bowler")
"""Entities whose outcomes are counted and whose effects are fitted; a non-striker is described as a batter."""
_CIRCUMSTANCES = 0.05
"""Circumstances differ far more than players do: their shrinkage starts at this part of the players'."""
_DETAIL = 2.0


@dataclass(frozen=True)
class Subject:
    """Deliveries with everything about them that careers depend on."""

    ledger: Ledger
    people: np.ndarray
    """Player id of each of the scorebook's people; the last is nobody's."""
    ids: np.ndarray
    """(N, 6) int64: ids of ENTITIES."""
    cells: Cells
    phase: np.ndarray

    @staticmethod
    def of(ledger: Ledger, index: EntityIndex) -> "Subject":
        """The deliveries of a ledger, with ids by this index."""
        return Subject(
            ledger, index.people(ledger.book), index.ids(ledger.book), contexts(ledger), phase_of_over(ledger)
        )

    def of_entity(self, entity: str) -> np.ndarray:
        """(N,) ids of one of ENTITIES."""
        return self.ids[:, ENTITIES.index(entity)]


@dataclass(frozen=True)
class Knowledge:
    """Counts, effects, roles and bowling types by id; id 0 knows nothing."""

    counts: dict[str, Tensor]
    """Entity -> (size, 7): how often each outcome came."""
    effects: dict[str, Tensor]
    """Effect -> (size, 7) shifts of the log-odds; prior -> (7,)."""
    roles: Tensor
    """(players,) int64."""
    spin: Tensor
    """(players,) float: how likely each bowls spin."""

    @staticmethod
    def learn(subject: Subject, rows: np.ndarray, sizes: dict[str, int]) -> "Knowledge":
        """What the deliveries in a mask teach."""
        players = sizes["player"]
        roles = infer_roles(subject.ledger, subject.people, rows, players)
        spin = torch.as_tensor(spin_share(subject.ledger, subject.people, rows, players))
        chosen = np.flatnonzero(rows)
        label = torch.as_tensor(subject.ledger.label[chosen])
        effects = [
            Effect(name, torch.as_tensor(member), size, stiffness)
            for name, member, size, stiffness in members(subject, spin, sizes, chosen)
        ]
        counts = {}
        for entity, size in entity_sizes(sizes).items():
            flat = torch.as_tensor(subject.of_entity(entity)[chosen]) * CLASSES + label
            counts[entity] = torch.bincount(flat, minlength=size * CLASSES).reshape(size, CLASSES)
            counts[entity][0] = 0
        return Knowledge(counts, fit_effects(label, effects), torch.as_tensor(roles), spin)

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, to be written."""
        parts = {f"count.{name}": value for name, value in self.counts.items()}
        parts |= {f"effect.{name}": value for name, value in self.effects.items()}
        return parts | {"roles": self.roles, "spin": self.spin}

    @staticmethod
    def from_tensors(tensors: dict[str, Tensor]) -> "Knowledge":
        """The knowledge that `tensors` gave."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        return Knowledge(part("count."), part("effect."), tensors["roles"], tensors["spin"])


def entity_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """How many ids each of COUNTED has."""
    kind = {"venue": "venue", "batting_team": "team", "bowling_team": "team"}
    return {entity: sizes[kind.get(entity, "player")] for entity in COUNTED}


def members(
    subject: Subject, spin: Tensor, sizes: dict[str, int], rows: np.ndarray
) -> Sequence[tuple[str, np.ndarray, int, float]]:
    """Name, member of each row, number of members and stiffness of every effect, in the order they are fitted."""
    players, phase = sizes["player"], subject.phase[rows]
    ids = {entity: subject.of_entity(entity)[rows] for entity in COUNTED}
    found = [(name, cell[rows], size, _CIRCUMSTANCES) for name, (cell, size) in subject.cells.items()]
    found += [(entity, ids[entity], size, 1.0) for entity, size in entity_sizes(sizes).items()]
    spins = (spin.numpy() > 0.5).astype(np.int64)[ids["bowler"]]
    found += [
        ("striker_phase", ids["striker"] * 3 + phase, players * 3, _DETAIL),
        ("bowler_phase", ids["bowler"] * 3 + phase, players * 3, _DETAIL),
        ("striker_type", ids["striker"] * 2 + spins, players * 2, _DETAIL),
    ]
    return found
