"""Ids of venues, teams and players; roles and bowling types."""

import json

import numpy as np

from lockstep.workloads.cricket.columns import ROLES
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.roles import infer_roles, spin_share
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.venues import Venues
from lockstep.workloads.cricket.matches.league import simulate
from lockstep.workloads.cricket.matches.match import KINDS, Innings, Match, Row
from lockstep.workloads.cricket.matches.scorebook import collect

BLANK = Row(*[0] * len(Row._fields))._replace(player_out=-1, fielder=-1)


def at(venue, city=""):
    return Match("1.json", "", venue, city, ("Reds", "Blues"), False, "")


def test_a_ground_is_the_same_with_and_without_its_town():
    venues = Venues.of([at("Eden Park", "Auckland"), at("Eden Park, Auckland"), at("Lords", "London")])
    assert venues.names == ["Eden Park", "Lords"]
    assert venues.number(at("Eden Park", "Auckland")) == venues.number(at("Eden Park")) == 0
    assert venues.number(at("Eden Gardens", "Kolkata")) == -1


def test_grounds_of_one_name_in_different_towns_are_different():
    bristol, taunton = at("County Ground, Bristol"), at("County Ground", "Taunton")
    venues = Venues.of([bristol, bristol, taunton])
    assert venues.names == ["County Ground, Bristol", "County Ground, Taunton"]
    assert (venues.number(bristol), venues.number(taunton)) == (0, 1)
    # Without a place, the ground with most matches; in an unknown place, none.
    assert venues.number(at("County Ground")) == 0
    assert venues.number(at("County Ground", "Hove")) == -1


def test_places_that_one_file_lists_together_are_one_ground():
    venues = Venues.of(
        [at("Warner Park, Basseterre"), at("Warner Park", "St Kitts"), at("Warner Park, Basseterre, St Kitts")]
    )
    assert venues.names == ["Warner Park"]
    assert Venues.from_json(json.loads(json.dumps(venues.as_json()))) == venues


def test_a_match_without_a_venue_has_an_unknown_one():
    assert Venues.of([at("")]).names == []
    assert Venues.of([at("Lords")]).number(at("")) == -1


def test_unseen_entities_have_id_zero():
    book, later = collect(simulate(10, seed=1)), collect(simulate(60, seed=1))
    index = EntityIndex.of(book)
    sizes, ids = index.sizes, index.ids(later)
    assert ids.shape == (len(later), 6) and ids.min() == 0
    assert (ids.max(0) < [sizes["venue"], sizes["team"], sizes["team"], *[sizes["player"]] * 3]).all()
    for row in np.linspace(0, len(later) - 1, 50).astype(int):
        striker = later.keys[later["batter"][row]]
        assert ids[row, 3] == next((n + 1 for n, (key, _) in enumerate(index.players) if key == striker), 0)
        batting = later.innings[later.innings_of[row]].team
        assert index.teams[ids[row, 1] - 1] == batting and ids[row, 1] != ids[row, 2]
    assert EntityIndex.from_json(json.loads(json.dumps(index.as_json()))) == index


def match_of(rows):
    people = {f"P{number}": f"{number:02d}" for number in range(22)}
    innings = [Innings("Reds", False, 0, 20.0, 0)]
    match = Match("1.json", "", "Park", "", ("Reds", "Blues"), False, "", people, {}, innings)
    match.rows = np.array(rows, np.int16)
    return match


def roles_and_spin(rows):
    scoreboard = Scoreboard(collect([match_of(rows)]))
    people = np.append(np.arange(1, 23), 0)
    everything = np.ones(len(rows), bool)
    return infer_roles(scoreboard, people, everything, 23), spin_share(scoreboard, people, everything, 23)


def test_roles_follow_from_batting_position_overs_bowled_and_stumpings():
    out = {"kind": KINDS.index("stumped"), "wickets": 1, "fielder": 15}
    rows = [BLANK._replace(batter=0, nonstriker=1, bowler=20, over=0) for _ in range(12)]
    rows += [
        BLANK._replace(batter=place, nonstriker=1, bowler=21, over=8, player_out=place, **out) for place in range(2, 9)
    ]
    roles, _ = roles_and_spin(rows)
    named = [ROLES[role] for role in roles]
    # Ids are one more than the players' numbers; 0 is nobody.
    assert named[0] == "unknown" and named[1:3] == ["opener", "opener"]
    assert named[3:5] == ["top_order"] * 2 and named[5:7] == ["middle_order"] * 2 and named[7:10] == ["finisher"] * 3
    assert named[21] == "bowler"
    # The keeper neither batted nor bowled here, so the role is unknown.
    assert named[16] == "unknown"


def test_stumpings_and_middle_overs_indicate_spin_and_new_balls_pace():
    stumped = {"kind": KINDS.index("stumped"), "wickets": 1, "fielder": 15}
    rows = [BLANK._replace(batter=0, nonstriker=1, bowler=20, over=0) for _ in range(24)]
    rows += [BLANK._replace(batter=0, nonstriker=1, bowler=21, over=9, **stumped) for _ in range(3)]
    _, spin = roles_and_spin(rows)
    assert spin[21] < 0.2 and spin[22] > 0.8
    assert spin[0] == spin[1] == 0.5
