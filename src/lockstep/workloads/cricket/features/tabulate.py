"""Builds tables from a scorebook: everything known before each delivery, with careers from training matches only.

Training matches are divided into folds. Career features of a training delivery come from the other folds, so that its
own match is never included; those of all other deliveries come from all training matches. With a chronicle there are no
folds: every delivery knows the training matches of earlier days.
"""

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lockstep.compute.device_array import tensor_of
from lockstep.workloads.cricket.columns import CAREER_WIDTH, OUTCOMES, STATE_COLUMNS, STATE_FEATURES, STATE_WIDTH
from lockstep.workloads.cricket.features import careers
from lockstep.workloads.cricket.features.chronicle import Chronicle
from lockstep.workloads.cricket.features.dynamics import dynamics
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.history import ball_features
from lockstep.workloads.cricket.features.knowledge import CareerInputs, Knowledge
from lockstep.workloads.cricket.features.match_state import match_state
from lockstep.workloads.cricket.features.player_state import player_state
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.table import DeliveryTable, MatchInfo
from lockstep.workloads.cricket.matches.scorebook import Scorebook

FOLDS = 5
"""Each fold's careers are learned from the other four fifths of the training matches."""


@dataclass(frozen=True)
class Learned:
    """Knowledge from the training matches: from all of them, and out of fold for the training matches themselves."""

    index: EntityIndex
    everything: Knowledge
    without: tuple[Knowledge, ...]
    """Fold -> knowledge from all other folds."""
    chronicle: Chronicle | None = None
    """What was known when, if careers count earlier matches only; there are no folds then."""


def fold_of(file: str) -> int:
    """The fold of a training match; it depends on the file's name alone, so adding matches moves no other."""
    return zlib.crc32(file.encode()) % FOLDS


def learn(scoreboard: Scoreboard) -> Learned:
    """Learn from the matches of a scoreboard, once from all and once without each fold."""
    book = scoreboard.book
    index = EntityIndex.of(book)
    inputs = CareerInputs.of(scoreboard, index)
    fold = _folds(book)[book.match]
    masks = [fold >= 0] + [fold != number for number in range(FOLDS)]
    # Most of the work releases the GIL, so two threads use two cores. Results come back in order.
    with ThreadPoolExecutor(2) as pool:
        first, *others = pool.map(lambda mask: Knowledge.learn(inputs, mask, index.sizes), masks)
    return Learned(index, first, tuple(others))


def learn_by_day(scoreboard: Scoreboard) -> Learned:
    """Learn from the matches of a scoreboard, as seen from every day."""
    index = EntityIndex.of(scoreboard.book)
    chronicle = Chronicle.learn(CareerInputs.of(scoreboard, index), index.sizes)
    return Learned(index, chronicle.everything, (), chronicle)


def describe(scoreboard: Scoreboard, learned: Learned, out_of_fold: bool) -> DeliveryTable:
    """The table of a scoreboard's deliveries; `out_of_fold` for the matches that were learned from."""
    book, inputs = scoreboard.book, CareerInputs.of(scoreboard, learned.index)
    career = torch.zeros(len(book), CAREER_WIDTH, dtype=torch.float16)
    prior, roles = np.zeros((len(book), 7), np.float32), np.zeros((len(book), 3), np.int64)
    types = {"pace": np.zeros(len(book)), "spin": np.zeros(len(book))}
    for rows, knowledge, known in _views(inputs, learned, out_of_fold):
        career[rows] = careers.career(inputs, knowledge, rows, known)
        prior[rows] = careers.prior(inputs, knowledge, rows).numpy()
        roles[rows] = careers.roles(inputs, knowledge, rows)
        for name, column in careers.bowling_types(inputs, knowledge, rows).items():
            types[name][rows] = column
    state = state_columns(scoreboard, prior, types, careers.today(scoreboard, np.exp(prior)))
    ids = inputs.ids
    first = book.first
    people = np.stack([book[column] for column in ("bowler", "batter", "nonstriker")], 1)
    score = np.stack([scoreboard.runs, scoreboard.wickets, scoreboard.legal_balls, scoreboard.target], 1)
    return DeliveryTable(
        label=torch.as_tensor(scoreboard.label),
        first=torch.as_tensor(first),
        sample=torch.as_tensor(np.flatnonzero(np.arange(len(book)) != first)),
        match=torch.as_tensor(book.match),
        innings=torch.as_tensor(book["innings"]),
        over=torch.as_tensor(book["over"]),
        ball_in_over=torch.as_tensor(book["ball_in_over"]),
        runs=torch.as_tensor(np.stack([book["batter_runs"], book["total_runs"]], 1).astype(np.int8)),
        score=torch.as_tensor(score.astype(np.int16)),
        ball=torch.as_tensor(ball_features(scoreboard)),
        # ENTITIES in the order of BALL_PEOPLE: bowler, striker, non-striker.
        ball_ids=torch.as_tensor(np.ascontiguousarray(ids[:, [5, 3, 4]])),
        people=torch.as_tensor(people),
        ids=torch.as_tensor(ids),
        roles=torch.as_tensor(roles),
        state=state,
        career=career,
        names=tuple(book.names),
        matches=tuple(MatchInfo(match.file, match.date, match.teams, match.venue) for match in book.matches),
        longest=int(np.diff(np.append(np.unique(first), len(book))).max(initial=0)),
    )


def _views(
    inputs: CareerInputs, learned: Learned, out_of_fold: bool
) -> Iterator[tuple[np.ndarray, Knowledge, dict[str, Tensor] | None]]:
    """Yield rows with the knowledge that they may use, and the counts if those differ from row to row."""
    book = inputs.scoreboard.book
    if learned.chronicle is not None:
        yield from learned.chronicle.views(inputs)
        return
    fold = _folds(book)[book.match] if out_of_fold else np.zeros(len(book), np.int64)
    for number, knowledge in enumerate(learned.without if out_of_fold else [learned.everything]):
        yield np.flatnonzero(fold == number), knowledge, None


def _folds(book: Scorebook) -> np.ndarray:
    return np.array([fold_of(match.file) for match in book.matches], np.int64)


def state_columns(
    scoreboard: Scoreboard,
    prior: np.ndarray,
    types: dict[str, np.ndarray],
    today: dict[tuple[str, str], np.ndarray],
) -> Tensor:
    """(N, STATE_WIDTH) float16: the columns of STATE_FEATURES in their order.

    `prior`: (N, 7) log-probabilities of the additive model; `types`, `today`: from features/careers.py.
    """
    device = tensor_of(prior).device
    # NaN marks columns that nothing has filled yet; the assertion below finds them.
    state = torch.full((len(prior), STATE_WIDTH), torch.nan, dtype=torch.float16, device=device)
    # A few node types at a time: all columns in full precision would take most of the memory.
    for features in (match_state, player_state, dynamics):
        for node, columns in features(scoreboard).items():
            for name, column in columns.items():
                state[:, _place(node, name)] = tensor_of(column.astype(np.float32))
    for name, column in types.items():
        state[:, _place("bowler_state", name)] = tensor_of(column)
    state[:, _outcomes("score_state", "prior")] = tensor_of(prior).half()
    for (node, name), block in today.items():
        state[:, _outcomes(node, name)] = tensor_of(block).half()
    assert not state.isnan().any(), "a column of the state was not filled, or contains NaN"
    return state


def _place(node: str, name: str) -> int:
    return STATE_COLUMNS[node].start + STATE_FEATURES[node].index(name)


def _outcomes(node: str, name: str) -> slice:
    start = _place(node, f"{name}_{OUTCOMES[0]}")
    return slice(start, start + len(OUTCOMES))
