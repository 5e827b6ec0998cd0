import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition.export import export_submission
from lockstep.workloads.snakes3v3.competition.gamelog import positions, read_log, record_game, replay, write_log
from lockstep.workloads.snakes3v3.competition.interface import CompetitionGame, decode, encode
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P, GameRules
from lockstep.workloads.snakes3v3.matches import render
from lockstep.workloads.snakes3v3.observations.observe import SIZES, observe
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS

SHORT = GameRules(max_steps=30)

WITHOUT_LOCKSTEP = """
import json, sys
sys.modules["torch"] = sys.modules["lockstep"] = None
sys.path.insert(0, sys.argv[1])
from submission import my_controller
seen = [{int(k) if k.isdigit() else k: v for k, v in one.items()} for one in json.load(open(sys.argv[2]))]
print(json.dumps([my_controller(one, None, False) for one in seen]))
"""


class AlongTheTeam(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)

    def forward(self, features):
        return self.lstm(features)[0]


def actor(kind, communicates):
    torch.manual_seed(1)
    middle = [AlongTheTeam(24), nn.Linear(48, 16)] if communicates else [nn.Linear(24, 16)]
    return nn.Sequential(nn.Linear(SIZES[kind], 24), nn.ReLU(), *middle, nn.ReLU(), nn.Linear(16, 4))


def exported(folder, network, kind, observations):
    """The actions of the exported team, in a process without torch and lockstep."""
    export_submission(network, kind, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["submission.py", "weights.npz"]
    shown = folder.parent / "observations.json"
    shown.write_text(json.dumps(observations))
    command = [sys.executable, "-c", WITHOUT_LOCKSTEP, str(folder), str(shown)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_actions_are_encoded_as_one_hot_lists():
    assert encode([3, 0]) == [[[0, 0, 0, 1]], [[1, 0, 0, 0]]]
    assert decode(encode([3, 0, 1, 2])) == [3, 0, 1, 2]
    with pytest.raises(UserError, match=r"action of player 1 is \[\[1, 1, 0, 0\]\]"):
        decode([[[0, 0, 0, 1]], [[1, 1, 0, 0]]])


def test_the_observation_has_the_platforms_keys_and_values():
    match = CompetitionGame(seed=2)
    shown = match.all_observes
    assert len(shown) == 6
    assert list(shown[4]) == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        "board_width",
        "board_height",
        "last_direction",
        "controlled_snake_index",
    ]
    assert shown[4]["controlled_snake_index"] == 6
    assert (shown[0]["board_width"], shown[0]["board_height"], shown[0]["last_direction"]) == (20, 10, None)
    assert len(shown[0][1]) == 5 and all(len(shown[0][code]) == 3 for code in range(2, 8))
    before = match.init_info["directions"]
    shown, reward, done, info_before, info_after = match.step(encode([0] * 6))
    assert shown[0]["last_direction"] == info_before["directions"] == before
    assert info_after["snakes_position"] == [shown[0][code] for code in range(2, 8)]
    assert info_after["beans_position"] == shown[0][1]
    assert len(reward) == len(info_after["hit"]) == len(info_after["score"]) == 6
    assert not done


def test_a_game_ends_after_its_last_step_and_refuses_another():
    match = CompetitionGame(SHORT, seed=2)
    for _ in range(30):
        assert not match.done
        match.step(encode([0] * 6))
    assert match.done
    assert match.n_return == match.game.score[0].tolist()
    assert match.check_win() == 2 + int(np.argmax(match.n_return))
    with pytest.raises(UserError, match="the game is over"):
        match.step(encode([0] * 6))


def test_the_wrong_number_of_actions_is_refused():
    with pytest.raises(UserError, match="5 actions; this game has 6 players"):
        CompetitionGame().step(encode([0] * 5))


@pytest.mark.parametrize(("kind", "communicates"), [("rich", False), ("rich", True), ("jidi26", False)])
def test_an_exported_team_takes_the_actions_of_the_network(tmp_path, kind, communicates):
    match, network, shown, expected = CompetitionGame(seed=5), actor(kind, communicates), [], []
    for _ in range(12):
        shown += [{str(key): value for key, value in one.items()} for one in match.all_observes]
        actions = [0] * 6
        for team in SNAKES_3V3.teams:
            chosen = network(observe(match.game, kind, team)).argmax(2)[0].tolist()
            for player, action in zip(team, chosen, strict=True):
                actions[player] = action
        expected += encode(actions)
        greedy = torch.cat([OPPONENTS["greedy"](match.game, team) for team in SNAKES_3V3.teams], dim=1)
        match.step(encode(greedy[0].tolist()))
    assert exported(tmp_path / "team", network, kind, shown) == expected


def test_a_network_for_the_five_player_game_is_exported(tmp_path):
    match, network = CompetitionGame(SNAKES_5P, seed=5), actor("rich", False)
    shown = [{str(key): value for key, value in one.items()} for one in match.all_observes]
    expected = [network(observe(match.game, "rich", team)).argmax(2)[0, 0].item() for team in SNAKES_5P.teams]
    assert exported(tmp_path / "team", network, "rich", shown) == encode(expected)


def test_unsupported_layers_and_observations_are_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="a Tanh cannot be exported"):
        export_submission(nn.Sequential(nn.Linear(26, 4), nn.Tanh()), "jidi26", tmp_path)
    with pytest.raises(UserError, match="the nearest is jidi26"):
        export_submission(nn.Sequential(nn.Linear(26, 4)), "jidi", tmp_path)


def game_log():
    return record_game([OPPONENTS["greedy"], OPPONENTS["random"]], ["greedy", "random"], SHORT, seed=7)


def test_a_log_has_the_competitions_keys():
    log = game_log()
    assert log["game_name"] == "snakes_3v3" and log["n_player"] == 6 and log["names"] == ["greedy", "random"]
    assert (log["board_height"], log["board_width"], len(log["steps"])) == (10, 20, 30)
    assert log["init_info"].keys() == {"snakes_position", "beans_position", "directions"}
    assert log["steps"][0].keys() == {"time", "info_before", "joint_action", "reward", "info_after"}
    assert log["n_return"] == log["winner_information"] == log["steps"][-1]["info_after"]["score"]
    total = [sum(step["reward"][player] for step in log["steps"]) for player in range(6)]
    assert total == log["n_return"]


def test_a_log_is_written_read_and_replayed(tmp_path):
    log = game_log()
    write_log(log, tmp_path / "game.json")
    assert read_log(tmp_path / "game.json") == log
    pictures = [render.text(game, 0) for game in replay(log)]
    assert len(pictures) == 31
    assert "step 0 of" in pictures[0] and "step 30 of" in pictures[30]
    seen = positions(log)
    assert seen[3].snakes == log["steps"][2]["info_after"]["snakes_position"]
    assert seen[0].time == 1 and seen[30].time == 31


def test_a_file_that_is_not_a_log_is_refused_in_one_line(tmp_path):
    for text in ("{", "[]", '{"init_info": {}}', '{"steps": []}', '{"init_info": {"snakes_position": 3}, "steps": []}'):
        (tmp_path / "game.json").write_text(text)
        with pytest.raises(UserError, match="not the log of a game") as refused:
            read_log(tmp_path / "game.json")
        assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"missing.json: cannot be read"):
        read_log(tmp_path / "missing.json")
