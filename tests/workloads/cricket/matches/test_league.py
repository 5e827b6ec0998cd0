"""The simulated league: reproducible, by the rules of the game, and with skills to learn."""

from itertools import pairwise

import numpy as np

from lockstep.workloads.cricket.columns import OUTCOMES
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.matches.league import hidden_league, simulate
from lockstep.workloads.cricket.matches.match import KINDS, Row
from lockstep.workloads.cricket.matches.scorebook import collect


def test_a_seed_gives_the_same_league_and_another_gives_another():
    first, again, other = (list(simulate(6, seed)) for seed in (1, 1, 2))
    for one, two in zip(first, again, strict=True):
        assert np.array_equal(one.rows, two.rows) and one.players == two.players
    assert not all(np.array_equal(one.rows, two.rows) for one, two in zip(first, other, strict=True))


def test_matches_keep_the_rules():
    book = collect(simulate(40, seed=3))
    scoreboard = Scoreboard(book)
    assert len(book.innings) == 80 and scoreboard.wickets.max() <= 9 and scoreboard.legal_balls.max() <= 119
    # A chase ends when the target is reached, and not a ball later.
    chase = scoreboard.target > 0
    assert (scoreboard.runs[chase] < scoreboard.target[chase]).all()
    assert (book["batter"] != book["nonstriker"]).all()
    # Nobody is out off a free hit, nobody is stumped by the quick bowlers, and over follows over.
    assert (scoreboard.label[scoreboard.free_hit] != OUTCOMES.index("wicket")).all()
    assert (book["kind"][np.isin(book["over"], range(6))] != KINDS.index("stumped")).all()
    assert (scoreboard.in_over.before(scoreboard.legal) < 6).all()
    assert (book["over"] == scoreboard.legal_balls // 6).all()
    # Nobody bowls more than four overs or for the side that bats.
    spell = np.bincount(np.unique(book.innings_of * 32 + book["over"], return_inverse=True)[1])
    assert spell.min() >= 1 and scoreboard.by_player("bowler").before(scoreboard.legal).max() < 24
    assert not set(book["bowler"][book.innings_of == 0]) & set(book["batter"][book.innings_of == 0])


def test_the_strike_changes_with_odd_runs_and_overs():
    (match, *_) = simulate(6, seed=4)
    rows = [Row(*row) for row in match.rows.tolist() if row[0] == 0]
    for now, then in pairwise(rows):
        if now.wickets or then.over == 19:
            continue
        changed = then.batter != now.batter
        assert changed == ((now.batter_runs % 2 == 1) ^ (then.over != now.over))


def test_outcomes_are_about_as_frequent_as_in_real_matches():
    shares = np.bincount(Scoreboard(collect(simulate(60, seed=5))).label, minlength=7) / sum(
        len(match.rows) for match in simulate(60, seed=5)
    )
    life = np.array([0.39, 0.34, 0.07, 0.0045, 0.095, 0.042, 0.057])
    assert (np.abs(shares - life) < [0.08, 0.08, 0.03, 0.01, 0.04, 0.04, 0.03]).all()


def test_hidden_skills_show_in_the_outcomes():
    random = np.random.default_rng([7, 300])
    skill = hidden_league(random).batting[:, OUTCOMES.index("six")]
    book = collect(simulate(300, seed=7))
    names = [name.removeprefix("Player ").split("-") for name in book.names]
    true = np.array([skill[(int(team) - 1) * (len(skill) // 10) + int(number) - 1] for team, number in names])
    faced = np.bincount(book["batter"], minlength=len(true))
    sixes = np.bincount(book["batter"], book["batter_runs"] == 6, len(true)) / np.maximum(faced, 1)
    often = faced > 400
    assert often.sum() > 20 and np.corrcoef(true[often], sixes[often])[0, 1] > 0.6
    # Some players appear once or twice, so that validation has unknown ones.
    assert ((faced > 0) & (faced < 30)).sum() > 5
