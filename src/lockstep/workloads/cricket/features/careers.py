"""Features from knowledge of other matches: careers, expected outcomes, and today's deviation from them."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from lockstep.compute.device_array import array_of, look_up, tensor_of
from lockstep.workloads.cricket.columns import CAREER_COLUMNS, CAREER_WIDTH, ROLES
from lockstep.workloads.cricket.features.knowledge import CareerInputs, Knowledge, members
from lockstep.workloads.cricket.features.roles import batting_role
from lockstep.workloads.cricket.features.running_sums import Groups
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.skills import CLASSES

_RATE_BALLS, _RATE_EVENTS = 60.0, 3.0
"""Deliveries of an average player added to each rate: at least this many, and enough for this many of the outcome.

A rare outcome needs more of them, or one lucky six would look like a habit.
"""
_SKILL_SCALE = 3.0
"""Factor for skills, which differ by some tenths: brings them to the scale of the other features."""
_TODAY_TEAM, _TODAY_PLAYER = 40.0, 10.0
"""Shrinkage of today's deviations, for teams and for players: pseudo-deliveries, in units of p(1-p), that went exactly
as expected."""
_NODES = {
    "venue": "venue",
    "batting_team": "batting_team",
    "bowling_team": "bowling_team",
    "striker_identity": "striker",
    "nonstriker_identity": "nonstriker",
    "bowler_identity": "bowler",
}
# Node type -> the effects beyond the entity's own that describe it.
_DETAILS = {"striker_identity": ("striker_phase", "striker_type"), "bowler_identity": ("bowler_phase",)}
_UNKNOWN, _BOWLER = ROLES.index("unknown"), ROLES.index("bowler")


def career(
    inputs: CareerInputs, knowledge: Knowledge, rows: np.ndarray, known: Mapping[str, Tensor] | None = None
) -> Tensor:
    """(len(rows), CAREER_WIDTH) float16: career features of the entities at these rows.

    `known`: by entity, outcomes counted for each row (len(rows), 7), if rows differ in what they may know.
    """
    result = torch.empty(len(rows), CAREER_WIDTH, dtype=torch.float16, device=knowledge.device)
    member = {name: tensor_of(index) for name, index, _ in members(inputs, knowledge.spin, _sizes(knowledge), rows)}
    year, years = inputs.cells["year"]
    for node, entity in _NODES.items():
        # A non-striker is described as a batter.
        kind = "striker" if entity == "nonstriker" else entity
        ids = tensor_of(inputs.of_entity(entity)[rows])
        this_year = ids * years + tensor_of(year[rows])
        parts = [
            _record(knowledge, knowledge.counts[kind])[ids] if known is None else _record(knowledge, known[entity]),
            knowledge.effects[kind][ids] + knowledge.effects[f"{kind}_year"][this_year],
        ]
        parts += [knowledge.effects[name][member[name]] for name in _DETAILS.get(node, ())]
        # The first part, the record, has its own scale.
        parts[1:] = [part * _SKILL_SCALE for part in parts[1:]]
        result[:, CAREER_COLUMNS[node]] = torch.cat(parts, 1).half()
    return result


def prior(inputs: CareerInputs, knowledge: Knowledge, rows: np.ndarray) -> Tensor:
    """(len(rows), 7) float32: log-probabilities by the additive model."""
    total = knowledge.effects["prior"].repeat(len(rows), 1)
    for _, shift in shifts(inputs, knowledge, rows):
        total += shift
    return torch.log_softmax(total, 1)


def shifts(inputs: CareerInputs, knowledge: Knowledge, rows: np.ndarray) -> Iterator[tuple[str, Tensor]]:
    """Each effect of the additive model by name, and its shift of the log-odds (len(rows), 7)."""
    for name, index, _ in members(inputs, knowledge.spin, _sizes(knowledge), rows):
        yield name, knowledge.effects[name][tensor_of(index)]


def today(scoreboard: Scoreboard, expected: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """(N, 7) by node type and name: today's deviation from what careers predict, in log-odds of each outcome.

    Counted before each delivery, over the match, the innings, the striker's innings and the bowler's spells.
    `expected`: (N, 7) probabilities for every delivery, from knowledge of other matches.
    """
    groups = {
        ("score_state", "match_today"): Groups(scoreboard.book.match),
        ("score_state", "innings_today"): scoreboard.in_innings,
        ("striker_state", "today"): scoreboard.by_player("batter"),
        ("bowler_state", "today"): scoreboard.by_player("bowler"),
    }
    result = {where: np.empty((len(scoreboard.book), CLASSES), np.float32) for where in groups}
    for outcome in range(CLASSES):
        surprise, spread = surprises(scoreboard.label == outcome, expected[:, outcome])
        for where, group in groups.items():
            result[where][:, outcome] = deviation(where, group.before(surprise), group.before(spread))
    return result


def surprises(came: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much more an outcome came than expected, and its variance, for each delivery."""
    probability = expected.astype(np.float64)
    return came - probability, probability * (1 - probability)


def deviation(where: tuple[str, str], surprise: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """A feature of `today`, from sums over deliveries.

    One Newton step from 0 for a shift of the log-odds: gradient over curvature plus shrinkage.
    """
    shrinkage = _TODAY_TEAM if where[0] == "score_state" else _TODAY_PLAYER
    return surprise / (spread + shrinkage) * _SKILL_SCALE


def roles(inputs: CareerInputs, knowledge: Knowledge, rows: np.ndarray) -> np.ndarray:
    """(len(rows), 3): roles of striker, non-striker and bowler; for unknown players inferred from the scorecard."""
    table = array_of(knowledge.roles)
    known = [look_up(table, inputs.of_entity(entity)[rows]) for entity in ("striker", "nonstriker", "bowler")]
    for column, position in enumerate(inputs.scoreboard.batting_positions):
        unknown = known[column] == _UNKNOWN
        known[column][unknown] = batting_role(position[rows][unknown])
    known[2][known[2] == _UNKNOWN] = _BOWLER
    return np.stack(known, 1)


def bowling_types(inputs: CareerInputs, knowledge: Knowledge, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities that the bowler bowls pace and spin; both 0 if nothing is known."""
    spin = look_up(array_of(knowledge.spin), inputs.of_entity("bowler")[rows])
    # Exactly 0.5 marks players without any evidence (see `spin_share`).
    known = spin != 0.5
    return {"pace": np.where(known, 1 - spin, 0), "spin": np.where(known, spin, 0)}


def _record(knowledge: Knowledge, counts: Tensor) -> Tensor:
    """(n, 8): log of deliveries and outcome rates, for counts (n, 7)."""
    counts = counts.float()
    balls, average = counts.sum(1, keepdim=True), knowledge.effects["prior"].exp()
    pseudo = (_RATE_EVENTS / average).clamp(min=_RATE_BALLS)
    rates = (counts + pseudo * average) / (balls + pseudo) / average
    return torch.cat([balls.log1p() / 4, rates.log() * 2], 1)


def _sizes(knowledge: Knowledge) -> dict[str, int]:
    counts = knowledge.counts
    return {"venue": len(counts["venue"]), "team": len(counts["batting_team"]), "player": len(counts["striker"])}
