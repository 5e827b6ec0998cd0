"""How deliveries count, and the scoreboard before them, on matches of a few balls."""

import numpy as np
import pytest

from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.matches.match import KINDS, Innings, Match, Row
from lockstep.workloads.cricket.matches.scorebook import collect

NOBODY = -1


def ball(innings=0, over=0, ball_in_over=0, batter=0, bowler=11, nonstriker=1, runs=0, total=None, kind="none", **more):
    row = Row(
        innings=innings,
        over=over,
        ball_in_over=ball_in_over,
        batter=batter,
        bowler=bowler,
        nonstriker=nonstriker,
        batter_runs=runs,
        total_runs=runs if total is None else total,
        wides=0,
        noballs=0,
        byes=0,
        legbyes=0,
        kind=KINDS.index(kind),
        wickets=int(kind not in ("none", "retired")),
        player_out=batter if kind != "none" else NOBODY,
        fielder=NOBODY,
        ran_all=0,
        powerplay=1,
    )
    return row._replace(**more)


def book_of(*rows, targets=None, overs=20.0, super_over=False):
    count = max(row.innings for row in rows) + 1
    innings = [
        Innings(("Reds", "Blues")[number % 2], super_over and number > 1, (targets or [0] * count)[number], overs, 0)
        for number in range(count)
    ]
    people = {f"P{number}": f"key-{number}" for number in range(22)}
    match = Match("1.json", "2020-01-01", "Park", "", ("Reds", "Blues"), False, "Reds", people, {}, innings)
    match.rows = np.array(rows, np.int16)
    return collect([match])


def test_outcomes_follow_the_batters_runs_unless_a_wicket_fell():
    rows = [ball(runs=runs) for runs in range(8)]
    rows += [ball(total=1, wides=1), ball(total=4, legbyes=4), ball(runs=1, kind="run out"), ball(kind="retired")]
    # Five runs count as a dot, seven as a six; wides and leg byes as dots.
    assert Scoreboard(book_of(*rows)).label.tolist() == [0, 1, 2, 3, 4, 0, 5, 5, 0, 0, 6, 6]


def test_the_scoreboard_leaves_out_the_delivery_itself():
    rows = [ball(runs=4), ball(total=1, wides=1), ball(kind="bowled"), ball(batter=2, runs=6), ball(batter=2)]
    scoreboard = Scoreboard(book_of(*rows))
    assert scoreboard.runs.tolist() == [0, 4, 5, 5, 11]
    assert scoreboard.wickets.tolist() == [0, 0, 0, 1, 1]
    assert scoreboard.legal_balls.tolist() == [0, 1, 1, 2, 3]
    assert scoreboard.deliveries.tolist() == [0, 1, 2, 3, 4]


def test_innings_do_not_count_into_each_other():
    scoreboard = Scoreboard(book_of(ball(runs=4), ball(runs=2), ball(innings=1, runs=1), ball(innings=1)))
    assert scoreboard.runs.tolist() == [0, 4, 0, 1]
    assert scoreboard.target.tolist() == [0, 0, 7, 7]
    assert scoreboard.book.first.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("target_in_file", "overs", "balls"),
    [
        (7, 20.0, 120),
        (7, 12.4, 76),  # one more than the total: known from the start, and its overs with it
        (5, 12.0, 120),  # revised for rain, perhaps after these balls: taken as not revised
        (0, 20.0, 120),  # not in the file
    ],
)
def test_a_target_revised_for_rain_is_not_known_earlier(target_in_file, overs, balls):
    rows = [ball(runs=6), ball(innings=1, runs=1), ball(innings=1)]
    scoreboard = Scoreboard(book_of(*rows, targets=[0, target_in_file], overs=overs))
    assert scoreboard.target.tolist() == [0, 7, 7]
    assert scoreboard.balls_left.tolist() == [120, balls, balls - 1]


def test_a_super_over_is_six_balls_and_chases_the_other_super_over():
    rows = [ball(runs=6), ball(innings=1, runs=6), ball(innings=2, runs=3), ball(innings=3), ball(innings=3)]
    scoreboard = Scoreboard(book_of(*rows, super_over=True))
    assert scoreboard.target.tolist() == [0, 7, 0, 4, 4]
    assert scoreboard.balls_left.tolist() == [120, 120, 6, 6, 5]
    assert scoreboard.super_over.tolist() == [False, False, True, True, True]


def test_a_free_hit_follows_a_no_ball_and_outlasts_wides():
    rows = [ball(total=1, noballs=1), ball(total=1, wides=1), ball(runs=1), ball(), ball()]
    assert Scoreboard(book_of(*rows)).free_hit.tolist() == [False, True, True, False, False]


def test_bowlers_are_charged_with_wides_but_not_with_byes_or_run_outs():
    rows = [ball(total=1, wides=1), ball(total=2, byes=2), ball(total=1, legbyes=1), ball(runs=1, kind="run out")]
    scoreboard = Scoreboard(book_of(*rows, ball(kind="stumped"), ball(kind="retired")))
    assert scoreboard.conceded.tolist() == [1, 0, 0, 1, 0, 0]
    assert scoreboard.credited.tolist() == [0, 0, 0, 0, 1, 0]


def test_four_all_run_is_not_a_boundary():
    assert Scoreboard(book_of(ball(runs=4), ball(runs=4, ran_all=1), ball(runs=6))).boundary.tolist() == [1, 0, 1]


def test_the_batting_order_is_the_order_of_arrival_at_either_end():
    rows = [ball(batter=0, nonstriker=1), ball(batter=1, nonstriker=0), ball(batter=5, nonstriker=0)]
    striker, nonstriker = Scoreboard(book_of(*rows)).batting_positions
    assert striker.tolist() == [0, 1, 2]
    assert nonstriker.tolist() == [1, 0, 0]


def test_a_scorebook_tells_people_apart_by_key_not_by_name():
    first, second = (book_of(ball()).matches[0] for _ in range(2))
    for match in (first, second):
        match.rows = np.array([ball()], np.int16)
    second.players = {"P0": "somebody else", **{name: key for name, key in first.players.items() if name != "P0"}}
    book = collect([first, second])
    assert [book.keys[person] for person in book["batter"]] == ["key-0", "somebody else"]
    assert [book.names[person] for person in book["batter"]] == ["P0", "P0"]
    assert book["bowler"][0] == book["bowler"][1]
