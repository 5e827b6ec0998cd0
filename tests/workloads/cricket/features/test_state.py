"""Features before each delivery, on an innings of a few balls worked out by hand."""

import numpy as np
import pytest

from lockstep.workloads.cricket.columns import BALL_FEATURES
from lockstep.workloads.cricket.features.dynamics import dynamics
from lockstep.workloads.cricket.features.history import ball_features
from lockstep.workloads.cricket.features.match_state import match_state
from lockstep.workloads.cricket.features.player_state import player_state
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.matches.match import KINDS, Innings, Match, Row
from lockstep.workloads.cricket.matches.scorebook import collect

A, B, C, X, Y = 0, 1, 2, 11, 12
BLANK = Row(*[0] * len(Row._fields))._replace(player_out=-1, fielder=-1, powerplay=1)


def ball(batter, nonstriker, bowler, runs=0, **more):
    more = {"total_runs": runs, **more}
    return BLANK._replace(batter=batter, nonstriker=nonstriker, bowler=bowler, batter_runs=runs, **more)


def caught(batter, nonstriker, bowler):
    kind = KINDS.index("caught")
    return ball(batter, nonstriker, bowler, kind=kind, wickets=1, player_out=batter)


def ledger_of(*innings, year="2020"):
    rows = [row._replace(innings=number) for number, part in enumerate(innings) for row in part]
    parts = [Innings(("Reds", "Blues")[number % 2], False, 0, 20.0, 0) for number in range(len(innings))]
    people = {f"P{number}": f"key-{number}" for number in range(22)}
    match = Match("1.json", f"{year}-01-01", "Park", "", ("Reds", "Blues"), False, "Reds", people, {}, parts)
    match.rows = np.array(rows, np.int16)
    return Scoreboard(collect([match]))


# A hits four, then one; B is bowled a wide, then nothing; then B is caught and C comes.
INNINGS = [
    ball(A, B, X, 4),
    ball(A, B, X, 1),
    ball(B, A, X, 0, wides=1, total_runs=1),
    ball(B, A, X),
    caught(B, A, X),
    ball(C, A, X, 2),
    ball(C, A, Y, over=1),
]


@pytest.fixture(scope="module")
def scoreboard():
    return ledger_of(INNINGS, [ball(A, B, X, 6), ball(A, B, X)])


def column(block, node, name):
    return block[node][name].astype(float)


def test_the_score_is_counted_before_the_ball(scoreboard):
    score = match_state(scoreboard)
    assert column(score, "score_state", "runs")[:7] * 250 == pytest.approx([0, 4, 5, 6, 6, 6, 8])
    assert column(score, "score_state", "wickets")[:7] * 10 == pytest.approx([0, 0, 0, 0, 0, 1, 1])
    assert column(score, "score_state", "legal_balls")[:7] * 120 == pytest.approx([0, 1, 2, 2, 3, 4, 5])
    assert column(score, "score_state", "second_innings").tolist() == [0] * 7 + [1] * 2
    assert column(score, "wicket_buffer", "in_hand")[5] == pytest.approx(0.9)


def test_only_the_chase_has_a_target(scoreboard):
    chase = match_state(scoreboard)["chase_state"]
    first = {name: float(values[3]) for name, values in chase.items()}
    assert [first[name] for name in list(chase)[:7]] == [0, 0, 0, 0, 0, 1, 1]
    # Eight runs made by the others: nine to win, three after the six.
    assert chase["needed"][7:] * 250 == pytest.approx([9, 3])
    assert chase["required_rate"][7:] * 20 == pytest.approx([9 * 6 / 120, 3 * 6 / 119])
    assert chase["difficulty"][7:].tolist() == [0, 0]
    assert chase["balls_left"][7:] * 120 == pytest.approx([120, 119])
    assert chase["first_wickets"][7:] * 10 == pytest.approx([1, 1])


def test_a_required_rate_makes_a_chase_difficult_by_steps():
    innings = [ball(A, B, X, 6, over=over) for over in range(20) for _ in range(6)]
    slow = [ball(A, B, X, over=over) for over in range(20) for _ in range(6)]
    chase = match_state(ledger_of(innings, slow))["chase_state"]
    # 721 to win: always above 12 an over.
    assert chase["difficulty"][120:].tolist() == [1.0] * 120
    assert chase["required_rate"].max() * 20 <= 36.0 + 1e-9


def test_phases_follow_deliveries_and_restrictions_follow_the_powerplay():
    rows = [ball(A, B, X, over=over, powerplay=int(over < 4)) for over in range(8) for _ in range(6)]
    phase = match_state(ledger_of(rows))["phase_state"]
    assert phase["powerplay"].tolist() == [True] * 36 + [False] * 12
    assert phase["restricted"].tolist() == [True] * 24 + [False] * 24
    assert phase["restricted_balls"][[23, 24, 47]].tolist() == pytest.approx([0, 24 / 36, 24 / 36])
    assert phase["ball_in_over"][:7] * 6 == pytest.approx([0, 1, 2, 3, 4, 5, 0])
    assert phase["last_of_over"][:7].tolist() == [False] * 5 + [True, False]


def test_a_batters_innings_continues_at_either_end(scoreboard):
    state = player_state(scoreboard)
    striker, other = state["striker_state"], state["nonstriker_state"]
    # Striker: A, A, B, B, B, C, C; non-striker: B, B, A, A, A, A, A.
    assert striker["runs"][:7] * 100 == pytest.approx([0, 4, 0, 0, 0, 0, 2])
    assert striker["balls"][:7] * 60 == pytest.approx([0, 1, 0, 0, 1, 0, 1])
    assert other["runs"][:7] * 100 == pytest.approx([0, 0, 5, 5, 5, 5, 5])
    assert other["balls"][:7] * 60 == pytest.approx([0, 0, 2, 2, 2, 2, 2])
    assert striker["not_yet_faced"][:7].tolist() == [True, False, True, True, False, True, False]
    assert striker["strike_rate"][1] * 200 == pytest.approx(400)
    assert striker["since_last_faced"][:2].tolist() == pytest.approx([1, 1 / 12])
    assert other["since_last_faced"][2:5] * 12 == pytest.approx([1, 2, 3])
    assert striker["position"][:7] * 11 == pytest.approx([0, 0, 1, 1, 1, 2, 2])
    assert striker["entry"][5] * 120 == pytest.approx(4)
    assert striker["boundaries"][1] * 10 == pytest.approx(1)


def test_bowlers_are_charged_with_wides_and_credited_with_wickets(scoreboard):
    bowler = player_state(scoreboard)["bowler_state"]
    assert bowler["balls"][:7] * 24 == pytest.approx([0, 1, 2, 2, 3, 4, 0])
    assert bowler["runs"][:7] * 50 == pytest.approx([0, 4, 5, 6, 6, 6, 0])
    assert bowler["wickets"][:7] * 5 == pytest.approx([0, 0, 0, 0, 0, 1, 0])
    assert bowler["economy"][5] * 15 == pytest.approx(6 * 6 / 4)
    # One wicket in four balls is 1.5 an over; an economy of 9 leaves a tenth.
    assert bowler["threat"][5] == pytest.approx(0.5 * 1.5 + 0.5 * 0.1)
    assert bowler["duel_balls"][:7] * 12 == pytest.approx([0, 1, 0, 0, 1, 0, 0])


def test_a_new_batter_starts_a_new_partnership(scoreboard):
    partnership = player_state(scoreboard)["partnership"]
    assert partnership["runs"][:7] * 100 == pytest.approx([0, 4, 5, 6, 6, 0, 2])
    assert partnership["balls"][:7] * 60 == pytest.approx([0, 1, 2, 2, 3, 0, 1])
    assert partnership["stability"][4] == pytest.approx(0.1)


def test_momentum_compares_the_last_balls_with_the_phase(scoreboard):
    state = dynamics(scoreboard)
    momentum = state["batting_momentum"]["momentum"]
    assert momentum[0] == 0 and momentum[1] == 1
    # Eight runs off six deliveries: eight an over against 7.5.
    assert momentum[6] == pytest.approx(8 / 7.5 - 1)
    assert state["bowling_momentum"]["momentum"].tolist() == (-momentum).tolist()
    assert state["pressure_index"]["pressure"][5] == pytest.approx(0.05)


def test_dot_pressure_counts_from_the_last_event(scoreboard):
    pressure = dynamics(scoreboard)["dot_pressure"]
    assert pressure["dots"][:7] * 6 == pytest.approx([0, 0, 0, 0, 1, 2, 0])
    assert pressure["since_boundary"][:7] * 12 == pytest.approx([0, 0, 1, 2, 3, 4, 5])
    assert pressure["since_wicket"][:7] * 30 == pytest.approx([0, 1, 2, 3, 4, 0, 1])
    # Before the third ball: a single just now, a four before it.
    assert pressure["weighted"][2] == pytest.approx((0 * 1 + -1 * 0.7) / 1.7)


def test_a_ball_of_the_history_has_its_eighteen_features(scoreboard):
    ball_at = dict(zip(BALL_FEATURES, ball_features(scoreboard)[4].tolist(), strict=True))
    nonzero = {name for name, value in ball_at.items() if value}
    assert nonzero == {"wicket", "caught"}
    wide = dict(zip(BALL_FEATURES, ball_features(scoreboard)[2].tolist(), strict=True))
    assert wide["wide"] == 1 and wide["runs"] == pytest.approx(1 / 6, rel=1e-3)
    assert ball_features(scoreboard)[6][BALL_FEATURES.index("over_parity")] == 1
