"""Games that are played out: the network sees each ball as in training, and the laws of the game hold."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from lockstep.compute.device_array import DeviceArray
from lockstep.workloads.cricket.data.samples import gather
from lockstep.workloads.cricket.features import careers
from lockstep.workloads.cricket.features.knowledge import CareerInputs
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.tabulate import describe, learn
from lockstep.workloads.cricket.live import simulation
from lockstep.workloads.cricket.live.delivery_kinds import DeliveryKinds
from lockstep.workloads.cricket.live.games import Games, Model, side_of
from lockstep.workloads.cricket.live.simulation import play_out
from lockstep.workloads.cricket.live.situation import NextBall, NotForecast, attack, batting_order, next_ball, situation
from lockstep.workloads.cricket.matches.league import simulate
from lockstep.workloads.cricket.matches.match import KINDS, Row
from lockstep.workloads.cricket.matches.scorebook import collect

FREQUENCIES = torch.tensor([0.36, 0.34, 0.07, 0.01, 0.11, 0.05, 0.06])
MANY_WICKETS = torch.tensor([0.3, 0.3, 0.0, 0.1, 0.0, 0.0, 0.3])
SEEN = ("state", "career", "ids", "roles", "innings", "phase", "ball", "ball_ids", "over", "ball_in_over")


def copied(match):
    """The match with rows of its own: a scorebook takes them away."""
    return replace(match, rows=match.rows.copy(), players=dict(match.players))


def cut(match, balls):
    """The match after so many deliveries; innings that have not begun are not in its file."""
    rows = match.rows[:balls].copy()
    return replace(match, rows=rows, innings=match.innings[: int(rows[-1, 0]) + 1], players=dict(match.players))


@pytest.fixture(scope="module")
def known():
    """What is learned from sixteen matches of a league, kinds of deliveries, and a match of the same league."""
    *matches, last = list(simulate(17, seed=5))
    book = collect(matches)
    learned = learn(Scoreboard(book))
    return learned, DeliveryKinds.of(describe(Scoreboard(book), learned, out_of_fold=True)), last


def same(live, table):
    """Compare samples; sums are added in another order, so the last digit of a half-precision number may differ."""
    for name in SEEN:
        ours, theirs = getattr(live, name).double(), getattr(table, name).double()
        assert torch.allclose(ours, theirs, rtol=2e-3, atol=2e-3), f"{name}: {(ours - theirs).abs().max()}"


def sample_of(table, row):
    return gather(table, table.phase(), torch.tensor([row]), row - int(table.first[row]))


def before(match, learned, balls):
    """A match cut off after so many deliveries, the ball that came next, and the additive model's probabilities."""
    at = situation(cut(match, balls))
    row = Row(*match.rows[balls].tolist())
    ball = NextBall(row.over, row.ball_in_over, row.batter, row.nonstriker, row.bowler)
    inputs = CareerInputs.of(Scoreboard(at.book(ball)), learned.index)
    expected = np.exp(careers.prior(inputs, learned.everything, np.arange(balls)).numpy())
    return at, ball, expected


@pytest.mark.parametrize("balls", [1, 6, 47, 133, 200])
def test_a_match_that_is_cut_off_looks_as_the_same_ball_did_in_training(known, balls):
    learned, kinds, match = known
    whole = describe(Scoreboard(collect([copied(match)])), learned, out_of_fold=False)
    at, ball, expected = before(match, learned, balls)
    table = describe(Scoreboard(at.book(ball)), learned, out_of_fold=False)
    assert len(table) == balls + 1
    for name in ("state", "career", "ids", "roles", "score", "innings", "over", "ball_in_over"):
        assert torch.equal(getattr(table, name)[balls], getattr(whole, name)[balls]), name
    if at.innings:
        return  # A chase needs the first innings, too: the next test has one.
    games = Games(
        at, side_of(at, at.batting, learned.index, learned.everything), np.arange(2), 0, np.zeros(2, int), 120
    )
    games.resume(ball, expected)
    for end in (games.striker, games.nonstriker):
        games._arrive(np.arange(2), end, games.legal)
    model = Model(lambda _: None, True, learned.index, learned.everything, kinds)
    live = games.samples(model, games.board(np.arange(2), balls), np.arange(2))[0]
    for game in (0, 1):
        same(replace_all(live, game), sample_of(whole, balls))


def replace_all(samples, game):
    """One game's samples."""
    return type(samples)(**{name: value[game : game + 1] for name, value in vars(samples).items()})


def test_every_ball_of_a_game_looks_as_it_would_in_training(known):
    learned, kinds, match = known
    at, ball, expected = before(match, learned, 30)
    seen = []

    def predict(samples):
        seen.append(samples)
        return FREQUENCIES.expand(len(samples), -1)

    model = Model(predict, True, learned.index, learned.everything, kinds)
    first = Games(
        at, side_of(at, at.batting, learned.index, learned.everything), np.arange(1), 0, np.zeros(1, int), 120
    )
    first.resume(ball, expected)
    first.play(model, 1, None)
    answer = side_of(at, at.other(at.batting), learned.index, learned.everything)
    chase = Games(at, answer, np.arange(1), 1, first.runs + 1, 120)
    chase.carry(first)
    chase.begin(1)
    chase.play(model, 1, first.board(np.arange(1), first.played))

    rows = np.concatenate([rows_of(first), rows_of(chase)])
    innings = [match.innings[0], replace(match.innings[1], target_runs=int(first.runs[0]) + 1)]
    played = replace(match, rows=rows, innings=innings, players=dict(at.match.players))
    table = describe(Scoreboard(collect([played])), learned, out_of_fold=False)
    assert len(table) == 30 + len(seen) and len(seen) > 150
    for place, samples in enumerate(seen, start=30):
        # The first ball of an innings is no sample; a third of the others will do.
        if place > int(table.first[place]) and place % 3 == 0:
            same(samples, sample_of(table, place))


def rows_of(games):
    columns = {"fielder": np.full(games.played, -1)} | {n: c[0, : games.played] for n, c in games.columns.items()}
    return np.stack([columns[name] for name in Row._fields], 1).astype(np.int16)


def played_out(known, games, balls=30, seed=3, spread=(0.0, 0.0), outcomes=FREQUENCIES):
    learned, kinds, match = known
    at, ball, expected = before(match, learned, balls)
    model = Model(lambda s: outcomes.expand(len(s), -1), False, learned.index, learned.everything, kinds, spread)
    return at, play_out(at, ball, model, expected, games, seed)


def test_games_on_a_device_are_those_of_numpy(known):
    """A GPU's way, computed by PyTorch on the CPU: every ball looks the same, and the games end alike."""
    learned, kinds, match = known
    for balls, reads_balls in ((30, False), (200, True)):
        at, ball, expected = before(match, learned, balls)
        seen = []

        def predict(samples, kept=seen):
            kept[-1].append(samples)
            return MANY_WICKETS.expand(len(samples), -1)

        model = Model(predict, reads_balls, learned.index, learned.everything, kinds, (0.05, 0.03))
        ends = []
        for numbers in (np.arange(20), DeviceArray(torch.arange(20))):
            seen.append([])
            ends.append(simulation.batch(at, ball, model, expected, numbers, 3))
        for by_numpy, on_device in zip(*seen, strict=True):
            same(on_device, by_numpy)
            for name in ("people", "present", "ball_people"):
                assert torch.equal(getattr(on_device, name), getattr(by_numpy, name))
        by_numpy, on_device = ends
        for name in ("first", "second", "target"):
            assert getattr(on_device, name).tolist() == getattr(by_numpy, name).tolist()


@pytest.mark.gpu
def test_games_on_a_gpu_are_those_of_numpy(known):
    learned, kinds, match = known
    at, ball, expected = before(match, learned, 30)
    ends = []
    for device in ("cpu", "cuda"):
        model = Model(
            lambda samples: FREQUENCIES.to(samples.state.device).expand(len(samples), -1),
            False,
            learned.index,
            learned.everything.to(torch.device(device)),
            kinds,
        )
        ends.append(play_out(at, ball, model, expected, 40, 3))
    by_numpy, on_gpu = ends
    assert on_gpu.first.tolist() == by_numpy.first.tolist() and on_gpu.second.tolist() == by_numpy.second.tolist()


def test_batches_change_no_game(known, monkeypatch):
    whole = played_out(known, 7, outcomes=MANY_WICKETS)[1]
    monkeypatch.setattr(simulation, "_BATCH", 3)
    parts = played_out(known, 7, outcomes=MANY_WICKETS)[1]
    assert parts.first.tolist() == whole.first.tolist() and parts.second.tolist() == whole.second.tolist()


def test_a_game_does_not_depend_on_how_many_are_played(known):
    few, many = (played_out(known, games, outcomes=MANY_WICKETS)[1] for games in (2, 5))
    assert few.first.tolist() == many.first[:2].tolist() and few.second.tolist() == many.second[:2].tolist()
    assert played_out(known, 5, seed=4, outcomes=MANY_WICKETS)[1].first.tolist() != many.first.tolist()


def test_games_on_different_days_end_farther_apart(known):
    alike, apart = (played_out(known, 40, balls=70, spread=(deviation, 0.0))[1].first for deviation in (0.0, 0.2))
    assert apart.std() > 1.5 * alike.std()
    # A day belongs to one innings: the chase of the same game has another one.
    chases = [played_out(known, 40, balls=200, spread=(0.2, deviation))[1].second.std() for deviation in (0.0, 0.2)]
    assert chases[0] != chases[1]


def test_games_end_by_the_laws(known):
    at, endings = played_out(known, 40)
    assert (endings.first >= at.runs).all() and endings.first.std() > 0
    # Nobody scores more than five runs beyond a target: a six off the ball that needed one.
    assert (endings.second <= endings.target + 10).all()
    assert endings.target.tolist() == (endings.first + 1).tolist()
    assert 0 < endings.chase_wins < 1
    _, chase = played_out(known, 10, balls=200)
    assert len(set(chase.first.tolist())) == 1


def test_an_innings_has_at_most_120_legal_balls_and_four_overs_a_bowler(known):
    learned, kinds, match = known
    at, ball, expected = before(match, learned, 30)
    model = Model(lambda s: FREQUENCIES.expand(len(s), -1), False, learned.index, learned.everything, kinds)
    side = side_of(at, at.batting, learned.index, learned.everything)
    games = Games(at, side, np.arange(20), 0, np.zeros(20, int), 120)
    games.resume(ball, expected)
    games.play(model, 7, None)
    assert ((games.legal == 120) | (games.wickets == 10)).all()
    assert (games.overs.max(1) <= 4).all()
    for game in range(20):
        over, bowler = (games.columns[name][game, : games.played] for name in ("over", "bowler"))
        balls = games.legal[game] + int((games.columns["wides"][game] > 0)[: games.played].sum())
        assert balls <= games.played
        by_over = [set(bowler[over == number].tolist()) for number in range(5, int(over.max()) + 1)]
        assert all(one.isdisjoint(other) for one, other in pairwise(by_over) if one and other)


@pytest.mark.parametrize("end", ["striker", "nonstriker"])
@pytest.mark.parametrize("balls", [3, 30, 200])
def test_a_batter_whom_the_caller_names_comes_in_once(known, monkeypatch, end, balls):
    learned, kinds, match = known
    kept = []

    class Kept(Games):
        def play(self, *arguments):
            super().play(*arguments)
            kept.append(self)

    monkeypatch.setattr(simulation, "Games", Kept)
    at, ball, expected = before(match, learned, balls)
    # The last of the order replaces one of the two at the crease, as if he had retired.
    named = batting_order(at, at.batting, learned.index, learned.everything)[-1]
    model = Model(lambda s: MANY_WICKETS.expand(len(s), -1), False, learned.index, learned.everything, kinds)
    play_out(at, replace(ball, **{end: named}), model, expected, 40, seed=3)
    innings, start = kept[0], len(at.rows)
    names = ("batter", "nonstriker", "bowler", "player_out", "wickets")
    striker, nonstriker, bowler, out, wickets = (innings.columns[name][:, start : innings.played] for name in names)
    # After a game's end all three are 0.
    assert (innings.wickets == 10).any() and (striker != nonstriker)[bowler != striker].all()
    for game in range(40):
        dismissed = out[game][wickets[game] > 0].tolist()
        assert len(set(dismissed)) == len(dismissed) > 0


def ball_after(known, balls, **changes):
    """The next ball by the laws, after the last delivery was changed."""
    learned, _, match = known
    shorter = cut(match, balls)
    for name, value in ({"batter_runs": 0, "total_runs": 0, "wides": 0, "noballs": 0, "kind": 0} | changes).items():
        shorter.rows[-1, Row._fields.index(name)] = value
    at = situation(shorter)
    order = batting_order(at, at.batting, learned.index, learned.everything)
    bowlers = attack(at, at.other(at.batting), learned.index, learned.everything)
    return Row(*shorter.rows[-1].tolist()), next_ball(at, order, bowlers), order


def test_batters_change_ends_after_odd_runs_and_after_an_over(known):
    _, _, match = known
    legal = (match.rows[:, Row._fields.index("wides")] == 0) & (match.rows[:, Row._fields.index("noballs")] == 0)
    over = match.rows[:, Row._fields.index("over")]
    ends = next(place for place in range(60) if over[place + 1] > over[place] and legal[: place + 1].all())
    for runs, crossed in ((0, False), (1, True), (2, False), (3, True)):
        last, ball, _ = ball_after(known, ends, batter_runs=runs, total_runs=runs)
        assert (ball.striker == last.nonstriker) == crossed and ball.bowler == last.bowler
        last, ball, _ = ball_after(known, ends + 1, batter_runs=runs, total_runs=runs)
        assert (ball.striker == last.nonstriker) != crossed
        assert (ball.over, ball.ball_in_over) == (last.over + 1, 0)
        assert ball.bowler != last.bowler and "bowler" in ball.guessed
    # A wide costs one run without running, and the ball is bowled again.
    last, ball, _ = ball_after(known, ends + 1, total_runs=1, wides=1)
    assert (ball.striker, ball.over, ball.bowler) == (last.batter, last.over, last.bowler)


def test_a_wicket_brings_somebody_who_has_not_batted(known):
    last, ball, order = ball_after(known, 3, kind=2, wickets=1, player_out=int(known[2].rows[2, 3]))
    assert ball.striker not in (last.batter, last.nonstriker) and ball.striker in order and "batter" in ball.guessed


def test_a_finished_innings_leads_to_the_chase_and_a_finished_match_to_nothing(known):
    match = known[2]
    first = int((match.rows[:, 0] == 0).sum())
    at = situation(cut(match, first))
    assert at.innings == 1 and at.batting == match.teams[1] and at.target == match.innings[1].target_runs
    with pytest.raises(NotForecast, match="over"):
        situation(copied(match))
    with pytest.raises(NotForecast, match="no innings"):
        situation(replace(match, innings=[], rows=match.rows[:0]))


def test_nothing_comes_after_the_last_over_even_if_others_are_missing(known):
    late = cut(known[2], 6)
    late.rows[:, [Row._fields.index("wides"), Row._fields.index("noballs")]] = 0
    late.rows[:, Row._fields.index("over")] = 19
    assert situation(late).innings == 1


def test_where_everybody_has_batted_one_who_had_retired_comes_back(known):
    learned, _, match = known
    shorter = cut(match, 14)
    shorter.rows[:, Row._fields.index("wickets")] = 0
    eleven = match.squads[match.teams[0]]
    # A new batter faces each ball, and the last of them retires.
    shorter.rows[:, Row._fields.index("batter")] = [eleven[place % 11] for place in range(14)]
    shorter.rows[:, Row._fields.index("nonstriker")] = [eleven[(place + 1) % 11] for place in range(14)]
    shorter.rows[-1, Row._fields.index("kind")] = KINDS.index("retired")
    at = situation(shorter)
    order = batting_order(at, at.batting, learned.index, learned.everything)
    ball = next_ball(at, order, attack(at, at.other(at.batting), learned.index, learned.everything))
    assert len({ball.striker, ball.nonstriker, int(shorter.rows[-1, 3])}) == 3


def test_sides_have_eleven_players_even_if_the_file_names_none(known):
    bare = replace(cut(known[2], 20), squads={})
    at = situation(bare)
    assert {len(eleven) for eleven in at.elevens.values()} == {11}
    assert len({player for eleven in at.elevens.values() for player in eleven}) == 22
