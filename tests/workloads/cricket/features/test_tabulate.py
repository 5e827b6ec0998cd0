"""Tables: no sample can see its own delivery, a later one, or its own match through anybody's career."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lockstep.workloads.cricket.columns import CAREER_COLUMNS, PRIOR_COLUMNS, STATE_COLUMNS, STATE_FEATURES
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.tabulate import FOLDS, describe, fold_of, learn
from lockstep.workloads.cricket.matches.league import simulate
from lockstep.workloads.cricket.matches.match import KINDS, Row
from lockstep.workloads.cricket.matches.scorebook import collect

MATCHES = 30


def league(altered=None):
    """The matches of a small league; one of them may be altered from some row on."""
    matches = list(simulate(MATCHES, seed=5))
    if altered is not None:
        number, row = altered
        matches[number] = replace(matches[number], rows=randomised(matches[number].rows, row))
    return matches


def randomised(rows, start):
    """The same match up to a row, and random deliveries (by the same people) from there on."""
    random = np.random.default_rng(start)
    rows, count = rows.copy(), len(rows) - start

    def put(name, values):
        rows[start:, Row._fields.index(name)] = values

    kind = random.integers(len(KINDS), size=count) * (random.random(count) < 0.3)
    runs = random.integers(7, size=count)
    put("batter_runs", runs)
    put("total_runs", runs + random.integers(2, size=count))
    for name in ("wides", "noballs", "byes", "legbyes", "ran_all"):
        put(name, random.integers(2, size=count))
    put("kind", kind)
    put("wickets", kind > 0)
    seen = rows[:start]
    # The delivery's own players and where the fielders may stand are inputs; those of later ones are not.
    rows[start + 1 :, Row._fields.index("powerplay")] = random.integers(2, size=count - 1)
    for name in ("batter", "nonstriker", "bowler"):
        place = Row._fields.index(name)
        rows[start + 1 :, place] = random.choice(np.unique(seen[:, place]), count - 1)
    put("player_out", np.where(kind > 0, rows[start:, Row._fields.index("batter")], -1))
    return rows


@pytest.fixture(scope="module")
def original():
    book = collect(league())
    return book, describe(Scoreboard(book), learn(Scoreboard(book)), out_of_fold=True)


@pytest.mark.parametrize(("match", "back"), [(3, 200), (17, 90), (8, 40)])
def test_no_feature_of_a_sample_changes_with_its_own_ball_or_later_ones(original, match, back):
    book, before = original
    rows = np.flatnonzero(book.match == match)
    row = int(rows[-back])
    changed = collect(league((match, len(rows) - back)))
    learned = learn(Scoreboard(changed))
    after = describe(Scoreboard(changed), learned, out_of_fold=True)
    assert not torch.equal(before.label[row:], after.label[row:])

    for name in ("state", "career", "roles", "score"):
        # Also every earlier row of the same match.
        old, new = getattr(before, name), getattr(after, name)
        same = (old[rows[0] : row + 1] == new[rows[0] : row + 1]).all(0)
        assert same.all(), f"{name} changed in columns {torch.nonzero(~same).squeeze(1).tolist()}"
    first = int(before.first[row])
    for name in ("ball", "people", "over", "ball_in_over"):
        assert torch.equal(getattr(before, name)[first:row], getattr(after, name)[first:row])
    assert torch.equal(before.people[row], after.people[row])

    # Later rows and the careers of other folds do change: the alteration had an effect.
    assert not torch.equal(before.state[row + 1 : rows[-1]], after.state[row + 1 : rows[-1]])
    others = torch.tensor([fold_of(info.file) != fold_of(before.matches[match].file) for info in before.matches])
    assert not torch.equal(before.career[others[before.match]], after.career[others[after.match]])


def test_careers_of_a_training_match_leave_out_its_fold(original):
    book, before = original
    fold = fold_of(book.matches[0].file)
    members = [number for number, match in enumerate(book.matches) if fold_of(match.file) == fold]
    assert 1 < len(members) < MATCHES
    changed = league()
    for number in members[1:]:
        changed[number] = replace(changed[number], rows=randomised(changed[number].rows, 30))
    again = collect(changed)
    after = describe(Scoreboard(again), learn(Scoreboard(again)), out_of_fold=True)
    rows = before.match == members[0]
    assert torch.equal(before.career[rows], after.career[after.match == members[0]])
    assert torch.equal(before.state[rows], after.state[after.match == members[0]])


def test_every_fold_has_matches():
    assert {fold_of(match.file) for match in simulate(MATCHES, seed=5)} == set(range(FOLDS))


def test_careers_of_other_matches_come_from_all_training_matches(original):
    book, _ = original
    learned = learn(Scoreboard(book))
    others = collect(simulate(8, seed=99))
    table = describe(Scoreboard(others), learned, out_of_fold=False)
    assert len(table) == len(others) and table.samples == len(others) - len(others.innings)
    assert table.state.isfinite().all() and table.career.isfinite().all()
    # Player ids mean the same names as in training, and some players were never seen.
    known = table.ids[:, 3] > 0
    names = [learned.index.players[number - 1][1] for number in table.ids[known, 3].tolist()]
    assert names == [table.names[person] for person in table.people[known, 1].tolist()]
    assert 0 < int((~known).sum()) < len(table)
    # An unknown player's career is empty, and the role comes from the place in the batting order.
    assert (table.career[~known][:, CAREER_COLUMNS["striker_identity"]] == 0).all()
    assert (table.roles > 0).all()


def test_histories_and_samples_follow_from_the_rows(original):
    book, table = original
    starts = torch.unique(table.first)
    assert len(starts) == len(book.innings)
    assert table.samples + len(starts) == len(table)
    assert not set(table.sample.tolist()) & set(starts.tolist())
    assert table.longest == int(np.bincount(book.innings_of).max())
    assert torch.equal(table.ids[:, [5, 3, 4]], table.ball_ids)
    assert (table.match.diff() >= 0).all()


def test_the_prior_is_a_distribution_that_beats_the_frequencies(original):
    _, table = original
    prior = table.state[:, PRIOR_COLUMNS].float()
    assert torch.allclose(prior.exp().sum(1), torch.ones(len(table)), atol=2e-3)
    shares = (table.class_counts() / table.samples).log()
    loss = -prior[table.sample, table.label[table.sample]].mean()
    assert loss < -shares[table.label[table.sample]].mean()


def test_every_column_has_a_name_and_a_place():
    for node, columns in STATE_COLUMNS.items():
        names = STATE_FEATURES[node]
        assert columns.stop - columns.start == len(names) == len(set(names))
    assert STATE_FEATURES["score_state"][PRIOR_COLUMNS.start - STATE_COLUMNS["score_state"].start] == "prior_dot"
    assert PRIOR_COLUMNS.stop - PRIOR_COLUMNS.start == 7
