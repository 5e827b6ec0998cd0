"""Random deliveries with every column filled and players changing as in a match; and match files."""

import json

import pytest
import torch

from lockstep.workloads.cricket.columns import CAREER_WIDTH, STATE_WIDTH
from lockstep.workloads.cricket.features.table import DeliveryTable, MatchInfo


def make_table(innings_lengths, seed=0, players=30):
    """A table with innings of these lengths; five bowlers take turns by the over, batters change now and then."""
    generator = torch.Generator().manual_seed(seed)

    def whole(high, *shape):
        return torch.randint(high, shape, generator=generator)

    rows = sum(innings_lengths)
    first, over, place, people, innings = [], [], [], [], []
    start = 0
    for number, length in enumerate(innings_lengths):
        pair, fresh, ball, current = [0, 1], 2, 0, 0
        for _ in range(length):
            if ball >= 6 and int(whole(8)) > 0:
                ball, current = 0, current + 1
            if int(whole(9)) == 0:
                pair[int(whole(2))] = fresh
                fresh += 1
            if int(whole(2)):
                pair.reverse()
            first.append(start)
            over.append(current)
            place.append(ball)
            people.append([40 + current % 5, *pair])
            innings.append(number % 2)
            ball += 1
        start += length
    first, people = torch.tensor(first), torch.tensor(people)
    known = torch.where(people < players, people + 1, people - 39 + players)
    known = torch.where(whole(5, rows, 3) == 0, 0, known)
    sample = torch.arange(rows)[torch.arange(rows) > first]
    ids = torch.cat([whole(4, rows, 1), whole(5, rows, 2), known[:, [1, 2, 0]]], 1)
    return DeliveryTable(
        label=whole(7, rows),
        first=first,
        sample=sample,
        match=torch.zeros(rows, dtype=torch.int64),
        innings=torch.tensor(innings),
        over=torch.tensor(over),
        ball_in_over=torch.tensor(place),
        runs=torch.zeros(rows, 2, dtype=torch.int8),
        score=torch.zeros(rows, 4, dtype=torch.int16),
        ball=torch.rand(rows, 18, generator=generator).half(),
        ball_ids=known,
        people=people,
        ids=ids,
        roles=whole(8, rows, 3),
        state=torch.rand(rows, STATE_WIDTH, generator=generator),
        career=torch.rand(rows, CAREER_WIDTH, generator=generator).half(),
        names=tuple(f"player {number}" for number in range(60)),
        matches=(MatchInfo("1.json", "2020-01-01", ("A", "B"), "here"),),
        longest=max(innings_lengths),
    )


@pytest.fixture(name="make_table")
def fixture_make_table():
    return make_table


def match_file(number, deliveries=30):
    """A match of two short innings, as a file's content."""
    people = [f"P{player}" for player in range(4)]

    def innings(team, batters, bowler):
        overs = [
            {
                "over": over,
                "deliveries": [
                    {
                        "batter": batters[ball % 2],
                        "bowler": bowler,
                        "non_striker": batters[1 - ball % 2],
                        "runs": {"batter": (number + ball) % 5, "extras": 0, "total": (number + ball) % 5},
                    }
                    for ball in range(6)
                ],
            }
            for over in range(deliveries // 6)
        ]
        return {"team": team, "overs": overs}

    info = {"teams": ["Reds", "Blues"], "venue": "Park", "dates": [f"2020-01-{number + 1:02d}"]}
    return json.dumps(
        {"info": info, "innings": [innings("Reds", people[:2], "P2"), innings("Blues", people[2:], "P0")]}
    )


def folder_of(path, count=12, **odd):
    path.mkdir(parents=True)
    for number in range(count):
        (path / f"{number:02d}.json").write_text(match_file(number))
    for name, content in odd.items():
        (path / f"{name}.json").write_text(content)
    return str(path)


@pytest.fixture(name="match_file")
def fixture_match_file():
    return match_file


@pytest.fixture(name="folder_of")
def fixture_folder_of():
    return folder_of
