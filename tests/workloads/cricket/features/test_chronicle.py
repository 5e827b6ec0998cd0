"""Careers of earlier days: exact counts, no match of the same or a later day, and no date at all."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lockstep.workloads.cricket.features.chronicle import UNDATED, Chronicle, DayCounts
from lockstep.workloads.cricket.features.knowledge import CareerInputs
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.tabulate import describe, learn_by_day
from lockstep.workloads.cricket.matches.league import simulate
from lockstep.workloads.cricket.matches.match import Row
from lockstep.workloads.cricket.matches.scorebook import collect

RUNS = Row._fields.index("batter_runs")


def test_counts_are_those_of_earlier_days_only():
    # Player 1: a dot and a single on day 10, a six on day 12; player 2: a wicket on day 11; one delivery has no date.
    ids, days = np.array([1, 1, 1, 2, 1, 0]), np.array([10, 10, 12, 11, UNDATED, 10])
    counts = DayCounts.of(ids, days, np.array([0, 1, 5, 6, 4, 2]))

    def known(player, day):
        return counts.before(np.array([player]), np.array([day])).squeeze(0).tolist()

    assert known(1, 10) == [0, 0, 0, 0, 0, 0, 0]
    assert known(1, 11) == [1, 1, 0, 0, 0, 0, 0]
    assert known(1, 12) == [1, 1, 0, 0, 0, 0, 0]
    assert known(1, 13) == [1, 1, 0, 0, 0, 1, 0]
    assert known(2, 11) == [0, 0, 0, 0, 0, 0, 0]
    assert known(2, 99) == [0, 0, 0, 0, 0, 0, 1]
    assert known(0, 99) == known(3, 99) == known(1, UNDATED) == [0, 0, 0, 0, 0, 0, 0]


def league(altered=(), dates=None):
    """Twelve matches a day apart, or at these dates; the runs of some of them altered."""
    matches = [replace(match, date=f"2020-03-{number + 1:02d}") for number, match in enumerate(simulate(12, seed=5))]
    for number, day in (dates or {}).items():
        matches[number] = replace(matches[number], date=day)
    for number in altered:
        rows = matches[number].rows.copy()
        rows[:, RUNS] = 6 - rows[:, RUNS]
        matches[number] = replace(matches[number], rows=rows)
    return collect(matches)


def described(book):
    return describe(Scoreboard(book), learn_by_day(Scoreboard(book)), out_of_fold=False)


@pytest.fixture(scope="module")
def original():
    return described(league())


def test_a_match_knows_earlier_days_and_no_later_ones(original):
    changed = described(league(altered=[6]))
    for number in range(12):
        rows = original.match == number
        same = torch.equal(original.career[rows], changed.career[rows])
        # The altered match's own careers do not change either.
        assert same == (number <= 6), f"match {number}"
    assert torch.equal(original.state[original.match < 6], changed.state[changed.match < 6])


def test_matches_of_the_same_day_do_not_see_each_other():
    together = {7: "2020-03-07"}
    one, other = described(league(dates=together)), described(league(altered=[6], dates=together))
    assert torch.equal(one.career[one.match == 7], other.career[other.match == 7])
    assert not torch.equal(one.career[one.match == 8], other.career[other.match == 8])


def test_a_match_without_a_date_sees_nothing_and_is_seen_by_none():
    one, other = described(league(dates={6: ""})), described(league(altered=[6], dates={6: ""}))
    assert torch.equal(one.career, other.career)
    # The first match knows nothing either: both have the careers of strangers.
    for number in (0, 6):
        assert (one.career[one.match == number] == 0).all()


def test_a_later_match_knows_everything():
    book = league()
    learned = learn_by_day(Scoreboard(book))
    later = collect([replace(match, date="2021-01-01") for match in simulate(12, seed=5)][:1])
    dated = describe(Scoreboard(later), learned, out_of_fold=False)
    everything = describe(Scoreboard(later), replace(learned, chronicle=None), out_of_fold=False)
    assert torch.equal(dated.career, everything.career)
    assert torch.equal(dated.state, everything.state)


def test_a_chronicle_survives_storage():
    book = league()
    learned = learn_by_day(Scoreboard(book))
    assert learned.chronicle is not None
    again = replace(learned, chronicle=Chronicle.from_tensors(learned.chronicle.tensors()))
    one, other = (describe(Scoreboard(book), which, out_of_fold=False) for which in (learned, again))
    assert torch.equal(one.career, other.career) and torch.equal(one.state, other.state)


def test_the_last_fit_counts_all_deliveries_with_a_date():
    book = league(dates={6: ""})
    learned = learn_by_day(Scoreboard(book))
    inputs = CareerInputs.of(Scoreboard(book), learned.index)
    dated = int((book.match != 6).sum())
    assert int(learned.everything.counts["striker"].sum()) == dated < len(inputs.scoreboard.book)
