"""From a scorebook to tables: everything known before each delivery, with careers from training matches only.

Training matches are dealt into folds; what a training delivery is told about careers comes from the other folds, so
that no delivery sees its own match. All other deliveries are told what all training matches teach.
"""

import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from lockstep.workloads.cricket import careers
from lockstep.workloads.cricket.actors import actors
from lockstep.workloads.cricket.columns import CAREER_WIDTH, STATE_FEATURES, STATE_WIDTH
from lockstep.workloads.cricket.dynamics import dynamics
from lockstep.workloads.cricket.entities import EntityIndex
from lockstep.workloads.cricket.history import ball_features
from lockstep.workloads.cricket.knowledge import Knowledge, Subject
from lockstep.workloads.cricket.ledger import Ledger
from lockstep.workloads.cricket.scorebook import Scorebook
from lockstep.workloads.cricket.situation import situation
from lockstep.workloads.cricket.table import DeliveryTable, MatchInfo

FOLDS = 5


@dataclass(frozen=True)
class Learned:
    """What the training matches taught: for new matches, and for each fold of the training matches themselves."""

    index: EntityIndex
    everything: Knowledge
    without: tuple[Knowledge, ...]
    """Fold -> knowledge from all other folds."""


def fold_of(file: str) -> int:
    """The fold of a training match, by its file's name alone."""
    return zlib.crc32(file.encode()) % FOLDS


def learn(ledger: Ledger, training: np.ndarray) -> Learned:
    """What the training matches teach, given as a mask over the scorebook's matches."""
    book = ledger.book
    index = EntityIndex.of(book, training)
    subject = Subject.of(ledger, index)
    folds = _folds(book)
    masks = [training] + [training & (folds != fold) for fold in range(FOLDS)]
    # Most of the work releases the interpreter, so two at a time use two cores.
    with ThreadPoolExecutor(2) as pool:
        first, *others = pool.map(lambda mask: Knowledge.learn(subject, mask[book.match], index.sizes), masks)
    return Learned(index, first, tuple(others))


def describe(ledger: Ledger, learned: Learned, training: np.ndarray) -> DeliveryTable:
    """The table of all deliveries; `training` says which matches must not be told about themselves."""
    book, subject = ledger.book, Subject.of(ledger, learned.index)
    career = torch.zeros(len(book), CAREER_WIDTH, dtype=torch.float16)
    prior, roles = np.zeros((len(book), 7), np.float32), np.zeros((len(book), 3), np.int64)
    types = {"pace": np.zeros(len(book)), "spin": np.zeros(len(book))}
    fold = np.where(training, _folds(book), -1)[book.match]
    for number, knowledge in enumerate((*learned.without, learned.everything)):
        rows = np.flatnonzero(fold == (number if number < FOLDS else -1))
        career[rows] = careers.career(subject, knowledge, rows)
        prior[rows] = careers.prior(subject, knowledge, rows).numpy()
        roles[rows] = careers.roles(subject, knowledge, rows)
        for name, column in careers.bowling_types(subject, knowledge, rows).items():
            types[name][rows] = column
    state = _state(ledger, subject, prior, types)
    ids = subject.ids
    first = book.first
    people = np.stack([book[column] for column in ("bowler", "batter", "nonstriker")], 1)
    score = np.stack([ledger.runs, ledger.wickets, ledger.legal_balls, ledger.target], 1)
    return DeliveryTable(
        label=torch.as_tensor(ledger.label),
        first=torch.as_tensor(first),
        sample=torch.as_tensor(np.flatnonzero(np.arange(len(book)) != first)),
        match=torch.as_tensor(book.match),
        innings=torch.as_tensor(book["innings"]),
        over=torch.as_tensor(book["over"]),
        ball_in_over=torch.as_tensor(book["ball_in_over"]),
        runs=torch.as_tensor(np.stack([book["batter_runs"], book["total_runs"]], 1).astype(np.int8)),
        score=torch.as_tensor(score.astype(np.int16)),
        ball=torch.as_tensor(ball_features(ledger)),
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


def _folds(book: Scorebook) -> np.ndarray:
    return np.array([fold_of(match.file) for match in book.matches], np.int64)


def _state(ledger: Ledger, subject: Subject, prior: np.ndarray, types: Mapping[str, np.ndarray]) -> torch.Tensor:
    """(N, STATE_WIDTH) float16: the columns of STATE_FEATURES in their order."""
    known: dict[str, dict[str, np.ndarray]] = {**situation(ledger), **actors(ledger), **dynamics(ledger)}
    known["bowler_state"] |= types
    today = careers.today(subject, np.exp(prior))
    outcomes = {
        "score_state": {"prior": prior, "match_today": today["match_today"], "innings_today": today["innings_today"]},
        "striker_state": {"today": today["striker_today"]},
        "bowler_state": {"today": today["bowler_today"]},
    }
    state, place = torch.empty(len(ledger.book), STATE_WIDTH, dtype=torch.float16), 0
    for node, names in STATE_FEATURES.items():
        for name, block in outcomes.get(node, {}).items():
            start = place + names.index(f"{name}_dot")
            state[:, start : start + block.shape[1]] = torch.as_tensor(block)
        for name in names:
            if name in known[node]:
                state[:, place] = torch.as_tensor(known[node].pop(name).astype(np.float32))
            place += 1
        assert not known[node], f"columns of {node} without a place: {list(known[node])}"
    return state
