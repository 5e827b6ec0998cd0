"""Every recorded transition of the original game is reproduced, with greedy actions, observations and rewards."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from lockstep.workloads.snakes3v3.competition.position import Position, position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3
from lockstep.workloads.snakes3v3.observations.observe import observe
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS
from lockstep.workloads.snakes3v3.training.rewards import jidi

RECORDING = Path(__file__).parents[4] / "shared/data/snakes3v3/transitions.jsonl.gz"
CPU = torch.device("cpu")

pytestmark = pytest.mark.skipif(not RECORDING.exists(), reason=f"no recording at {RECORDING}")


@pytest.fixture(scope="module")
def recording():
    with gzip.open(RECORDING, "rt") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == 8017
    return lines


def game_at(lines, moment="before", sparse=True):
    game = SnakesGame(SNAKES_3V3, torch.arange(len(lines)), 5, CPU, sparse=sparse)
    later = moment == "after"
    set_up(game, [Position(**line[moment], time=line["t"] + later) for line in lines])
    return game


@pytest.mark.parametrize("sparse", [True, False])
def test_every_transition_equals_the_recorded_one(recording, sparse):
    game = game_at(recording, sparse=sparse)
    done = game.step(torch.tensor([line["taken"] for line in recording]))
    assert done.reward.tolist() == [line["reward"] for line in recording]
    assert done.dead.int().tolist() == [line["hit"] for line in recording]
    assert done.ended.tolist() == [line["done"] for line in recording]
    assert game.score.tolist() == [line["score"] for line in recording]
    failed = (game.lengths == 0).any(1)
    assert failed.tolist() == [line["respawn_failed"] for line in recording]
    codes = game.board.tolist()
    for board, line in enumerate(recording):
        compare_position(position(game, board), line)
        compare_board(codes[board], position(game, board))


def compare_position(seen, line):
    after = line["after"]
    assert seen.snakes == after["snakes"], line["id"]
    assert seen.time == line["t"] + 1
    for player, snake in enumerate(seen.snakes):
        assert not snake or seen.directions[player] == after["directions"][player], line["id"]
    kept = len(after["beans"]) - len(line["new_beans"])
    assert seen.beans[:kept] == after["beans"][:kept]
    assert len(seen.beans) == len(after["beans"])


def compare_board(codes, seen):
    """The codes agree with the lists, and no cell is used twice."""
    expected = [[0] * 20 for _ in range(10)]
    for code, cells in enumerate([seen.beans, *seen.snakes], start=1):
        for row, column in cells:
            assert expected[row][column] == 0
            expected[row][column] = code
    assert codes == expected


def test_every_greedy_action_equals_the_recorded_one_on_both_sides(recording):
    lines = [line for line in recording if "greedy" in line]
    assert len(lines) == 1485
    game = game_at(lines)
    for name in ("greedy", "level2"):
        for side, team in enumerate(SNAKES_3V3.teams):
            assert OPPONENTS[name](game, team).tolist() == [line["greedy"][side] for line in lines]


def test_every_jidi26_observation_equals_the_recorded_one(recording):
    lines = [line for line in recording if "obs26" in line]
    assert len(lines) == 1442
    assert observe(game_at(lines), "jidi26", (0, 1, 2)).tolist() == [line["obs26"] for line in lines]


def test_every_shaped_reward_equals_the_recorded_one(recording):
    pairs = [(line, entry) for line in recording for entry in line.get("shaped", [])]
    assert len(pairs) == 2180
    game = game_at([line for line, _ in pairs], "after")
    reward = torch.tensor([line["reward"][:3] for line, _ in pairs], dtype=torch.float64)
    status = torch.tensor([entry["status"] for _, entry in pairs])
    shaped = jidi(reward, game.heads[:, :3], game.beans, status)
    recorded = torch.tensor([entry["value"] for _, entry in pairs], dtype=torch.float64)
    assert (shaped - recorded).abs().max() < 1e-9
