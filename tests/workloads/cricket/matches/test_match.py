"""Match files: what is read from both format versions, the rules for special cases, and reasons for refusals."""

import json

import pytest

from lockstep.workloads.cricket.matches.match import KINDS, NotAMatch, Row, read_match


def delivery(batter="A", bowler="X", nonstriker="B", runs=0, total=None, **more):
    total = runs if total is None else total
    return {
        "batter": batter,
        "bowler": bowler,
        "non_striker": nonstriker,
        "runs": {"batter": runs, "extras": total - runs, "total": total},
        **more,
    }


def document(*innings, **info):
    info = {
        "teams": ["Reds", "Blues"],
        "venue": "Park, Town",
        "city": "Town",
        "dates": ["2020-02-29"],
        "gender": "male",
        "overs": 20,
        "players": {"Reds": ["A", "B", "C"], "Blues": ["X", "Y"]},
        "registry": {"people": {"A": "key-a", "X": "key-x"}},
        "toss": {"winner": "Reds", "decision": "bat"},
        **info,
    }
    return {"meta": {"data_version": "1.0.0"}, "info": info, "innings": list(innings)}


def innings(*overs, team="Reds", **more):
    listed = [{"over": number, "deliveries": list(deliveries)} for number, deliveries in enumerate(overs)]
    return {"team": team, "overs": listed, **more}


def read(content):
    return read_match("7.json", content if isinstance(content, bytes) else json.dumps(content).encode())


def rows_of(match):
    return [Row(*row) for row in match.rows.tolist()]


def test_a_delivery_is_read_field_by_field():
    caught = delivery(
        runs=0,
        total=1,
        extras={"noballs": 1},
        wickets=[{"kind": "caught and bowled", "player_out": "A", "fielders": [{"name": "Y"}]}],
    )
    match = read(document(innings([delivery(runs=4), caught])))
    first, second = rows_of(match)
    names = list(match.players)
    assert (names[first.batter], names[first.bowler], names[first.nonstriker]) == ("A", "X", "B")
    assert (first.innings, first.over, first.ball_in_over, first.batter_runs, first.total_runs) == (0, 0, 0, 4, 4)
    assert (first.kind, first.wickets, first.player_out, first.fielder) == (0, 0, -1, -1)
    assert (second.ball_in_over, second.noballs, second.total_runs) == (1, 1, 1)
    assert (KINDS[second.kind], second.wickets) == ("caught", 1)
    assert (names[second.player_out], names[second.fielder]) == ("A", "Y")


def test_a_match_is_read_with_venue_teams_and_toss():
    match = read(document(innings([delivery()])))
    assert (match.venue, match.city, match.date, match.teams) == ("Park, Town", "Town", "2020-02-29", ("Reds", "Blues"))
    assert match.players == {"A": "key-a", "B": "name:B", "C": "name:C", "X": "key-x", "Y": "name:Y"}
    assert match.squads == {"Reds": [0, 1, 2], "Blues": [3, 4]}
    assert not match.female and match.toss_winner == "Reds"


def test_a_match_without_deliveries_gives_no_rows():
    assert read(document()).rows.shape == (0, len(Row._fields))
    forfeited = {"team": "Blues", "forfeited": True}
    match = read(document(innings([delivery()]), forfeited))
    assert len(match.rows) == 1 and len(match.innings) == 2


def test_a_super_over_is_marked_and_a_target_kept():
    target = {"runs": 120, "overs": 15.3}
    match = read(document(innings([delivery()], target=target), innings([delivery()], team="Blues", super_over=True)))
    assert [part.super_over for part in match.innings] == [False, True]
    assert (match.innings[0].target_runs, match.innings[0].target_overs) == (120, 15.3)
    assert [row.innings for row in rows_of(match)] == [0, 1]


def test_a_match_flagged_as_fifty_overs_is_read_as_the_twenty_it_had():
    assert len(read(document(innings([delivery()]), overs=50)).rows) == 1
    late = {"team": "Reds", "overs": [{"over": 20, "deliveries": [delivery()]}]}
    with pytest.raises(NotAMatch, match="over is '20', not a whole number from 0 to 19"):
        read(document(late, overs=50))


def test_retiring_hurt_is_a_wicket_outcome_but_costs_no_wicket():
    hurt = delivery(wickets=[{"kind": "retired hurt", "player_out": "A"}])
    out = delivery(wickets=[{"kind": "run out", "player_out": "B"}, {"kind": "retired out", "player_out": "A"}])
    first, second = rows_of(read(document(innings([hurt, out]))))
    assert (KINDS[first.kind], first.wickets) == ("retired", 0)
    assert (KINDS[second.kind], second.wickets) == ("run out", 2)


def test_the_powerplay_comes_from_the_file_and_defaults_to_six_overs():
    overs = [[delivery()]] * 8
    shortened = innings(*overs, powerplays=[{"from": 0.1, "to": 3.7, "type": "mandatory"}])
    assert [row.powerplay for row in rows_of(read(document(shortened)))] == [1, 1, 1, 1, 0, 0, 0, 0]
    assert [row.powerplay for row in rows_of(read(document(innings(*overs))))] == [1, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("missing", ["venue", "city", "dates", "gender", "overs", "players", "registry", "toss"])
def test_optional_fields_may_be_missing(missing):
    content = document(innings([delivery()]))
    del content["info"][missing]
    assert len(read(content).rows) == 1


@pytest.mark.parametrize("date", [["soon"], ["2020-02-30"], [2020], [], None])
def test_an_invalid_date_counts_as_missing(date):
    assert read(document(dates=date)).date == ""


BROKEN = {
    "cut short": (json.dumps(document(innings([delivery()]))).encode()[:-9], "not valid JSON"),
    "empty": (b"", "not valid JSON"),
    "not text": (b"\xff\xfe\x00", "not valid JSON"),
    "too deep": (b"[" * 200_000, "not valid JSON"),
    "a list": (b"[]", "the file is not a JSON object"),
    "no info": (b"{}", "the file has no 'info'"),
    "one team": (document(teams=["Reds"]), "info.teams is not a pair"),
    "innings of another team": (
        document(innings([delivery()], team="Greens")),
        "'Greens' is not one of the match's teams",
    ),
    "no runs": (document(innings([{"batter": "A", "bowler": "X", "non_striker": "B"}])), "delivery 1: no 'runs'"),
    "runs in words": (
        document(innings([delivery(), delivery(extras={"wides": "1"})])),
        "over 0, delivery 2: wides is '1'",
    ),
    "negative runs": (document(innings([delivery(runs=-1)])), "runs.batter is '-1'"),
    "runs beyond belief": (document(innings([delivery(runs=10**30)])), "runs.batter is"),
    "nameless": (document(innings([delivery(batter="")])), "delivery 1: a player without a name"),
    "number for a name": (document(innings([delivery(bowler=3)])), "a player without a name"),
    "odd wickets": (document(innings([delivery(wickets=[3])])), "delivery 1: not as expected"),
    "endless over": (document(innings([delivery()] * 61)), "61 deliveries, more than 60"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_invalid_match_file_is_refused_with_the_reason(case):
    content, words = BROKEN[case]
    with pytest.raises(NotAMatch) as error:
        read(content)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_overs_out_of_order_are_refused():
    twice = {"team": "Reds", "overs": [{"over": 3, "deliveries": []}, {"over": 3, "deliveries": []}]}
    with pytest.raises(NotAMatch, match="over 3 comes after over 3"):
        read(document(twice))
