import math

import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_5P, GameRules
from lockstep.workloads.snakes3v3.matches.arena import ArenaResult, play_games
from lockstep.workloads.snakes3v3.opponents.scripted import greedy_action

PUBLISHED = {
    ("random", "random"): (0.89, 0.71, 65, 50),
    ("greedy", "random"): (20.86, 0.78, 194, 4),
    ("greedy", "greedy"): (10.96, 10.85, 97, 100),
    ("level1", "random"): (5.92, 0.83, 165, 17),
    ("level3", "random"): (12.89, 0.74, 192, 3),
    ("level4", "random"): (13.93, 0.93, 187, 4),
    ("evasive", "random"): (15.80, 0.72, 193, 2),
    ("level1", "greedy"): (2.20, 15.21, 11, 184),
    ("level3", "greedy"): (6.96, 12.04, 58, 133),
    ("level4", "greedy"): (7.79, 12.55, 60, 137),
    ("evasive", "greedy"): (9.80, 12.99, 62, 128),
    ("evasive", "level4"): (9.95, 8.40, 108, 86),
}
"""Scores, wins and losses of the first in 200 games, measured on an independent program."""
FAST = [("greedy", "random"), ("level4", "greedy")]
DEVIATIONS = 4.0


def agree(pair, games, seed):
    """Assert that every number is within the statistical error of both measurements."""
    result = play_games(*pair, games, seed, both_sides=False)
    *scores, wins, losses = PUBLISHED[pair]
    for side, published in enumerate(scores):
        mean, half = result.score(side)
        error = half / 1.96 * math.sqrt(1 + games / 200)
        assert abs(mean - published) < DEVIATIONS * error, f"{pair}: {mean:.2f} for {published}"
    for count, published in ((result.wins, wins), (result.losses, losses)):
        share = (count + published) / (games + 200)
        error = math.sqrt(max(share * (1 - share), 1e-4) * (1 / games + 1 / 200))
        assert abs(count / games - published / 200) < DEVIATIONS * error, f"{pair}: {count} of {games} for {published}"


@pytest.mark.parametrize("pair", FAST, ids=" v ".join)
def test_the_published_table_is_reproduced(pair):
    agree(pair, games=200, seed=21)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PUBLISHED, ids=" v ".join)
def test_the_whole_published_table_is_reproduced(pair):
    agree(pair, games=1000, seed=22)


def result(a, b, deaths=None):
    scores = torch.tensor([a, b], dtype=torch.float32)
    return ArenaResult(("first", "second"), scores, torch.zeros_like(scores) if deaths is None else deaths)


def test_wins_losses_and_draws_are_counted():
    counted = result([3, 1, 2, 5], [1, 1, 4, -2])
    assert (counted.games, counted.wins, counted.losses, counted.draws) == (4, 2, 1, 1)


def test_the_interval_of_a_share_is_wilsons_interval():
    share, low, high = result([1.0] * 194 + [0.0] * 6, [0.5] * 200).share(194)
    assert share == 0.97
    assert (low, high) == pytest.approx((0.9361, 0.9862), abs=1e-4)
    assert result([1.0] * 10, [0.0] * 10).share(10)[1:] == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert result([1.0] * 10, [0.0] * 10).share(0)[1] == 0.0


def test_the_interval_of_a_score_is_the_normal_interval():
    mean, half = result([1, 2, 3, 4], [0, 0, 0, 0]).score(0)
    assert mean == 2.5
    assert half == pytest.approx(1.96 * math.sqrt(5 / 3) / 2, rel=1e-4)
    assert result([1], [0]).score(0) == (1.0, 0.0)


def test_the_table_shows_scores_deaths_and_results():
    text = result([3, 1], [1, 1], torch.tensor([[2.0, 4.0], [7.0, 8.0]])).table()
    assert text.splitlines() == [
        "first against second, 2 games (95% intervals)",
        "  first   score   2.00 ± 1.96   deaths   3.0",
        "  second  score   1.00 ± 0.00   deaths   7.5",
        "  wins        1    50.0%   (9.5% to 90.5%)",
        "  losses      0     0.0%   (0.0% to 65.8%)",
        "  draws       1    50.0%   (9.5% to 90.5%)",
    ]


def test_the_summary_is_plain_numbers():
    summary = result([3, 1], [1, 1]).summary()
    assert summary["games"] == 2 and summary["wins"] == 1 and summary["draws"] == 1
    assert summary["sides"][0]["name"] == "first" and summary["sides"][0]["score"] == 2.0


def test_half_of_the_games_are_played_from_each_side():
    seen = []

    def watching(game: SnakesGame, players):
        seen.append(tuple(players))
        return greedy_action(game, players)

    short = GameRules(max_steps=3)
    counted = play_games(watching, "random", 10, 0, short)
    assert counted.games == 10
    assert seen == [(0, 1, 2)] * 3 + [(3, 4, 5)] * 3
    assert counted.names == ("watching", "random")


def test_the_same_seed_plays_the_same_games():
    short = GameRules(max_steps=30)
    first, again, other = (play_games("greedy", "evasive", 20, seed, short) for seed in (1, 1, 2))
    assert torch.equal(first.scores, again.scores)
    assert not torch.equal(first.scores, other.scores)


def test_in_the_five_player_game_the_rival_is_the_best_other_snake():
    short = GameRules(players=5, teams=SNAKES_5P.teams, max_steps=40)
    counted = play_games("greedy", "random", 20, 3, short)
    assert counted.scores.shape == (2, 20)
    assert counted.wins > counted.losses
    assert counted.deaths[1].sum() > counted.deaths[0].sum()


def test_bad_input_is_refused_in_one_line():
    with pytest.raises(UserError, match='opponent "greedi": unknown; the nearest is greedy'):
        play_games("greedi", "random", 2, 0)
    with pytest.raises(UserError, match="episodes 3: allowed: 2, 4, 6"):
        play_games("greedy", "random", 3, 0)
    with pytest.raises(UserError, match="episodes 0: allowed: 1 or more"):
        play_games("greedy", "random", 0, 0, both_sides=False)
