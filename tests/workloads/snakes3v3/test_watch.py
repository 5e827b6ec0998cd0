"""`play` shows the games of an evaluation, and replays logged games exactly."""

import json
from itertools import takewhile

import numpy as np
import pytest

from lockstep.cli.main import main
from lockstep.distributed.world import World
from lockstep.workloads.capabilities import PlayRequest
from lockstep.workloads.snakes3v3.matches import render
from lockstep.workloads.snakes3v3.workload import Snakes3v3

SNAKES = Snakes3v3()


def config(**changes):
    return SNAKES.preset("debug").replace(observation="jidi26", episode_length=30, **changes)


def first_game(config, act, seed):
    """The scenes of the first game, without the one after its last step."""
    return list(takewhile(lambda scene: not scene.ended, SNAKES.scenes(PlayRequest(config, act, seed))))


@pytest.mark.parametrize("game_name", ["snakes_3v3", "snakes_5p"])
def test_play_shows_the_games_of_an_evaluation(game_name):
    chosen = config(game_name=game_name)
    world = World().with_lanes(8, "fast")
    evaluation = SNAKES.evaluate_baseline("greedy", chosen, world, 3, seed=4)
    shown = SNAKES.scenes(PlayRequest(chosen, "greedy", 4))
    ends = [next(scene for scene in shown if scene.ended) for _ in range(3)]
    assert [scene.score for scene in ends] == evaluation.returns


def test_play_shows_a_networks_games_of_an_evaluation():
    chosen = config()
    learner = SNAKES.build(chosen, World().with_lanes(8, "fast"))
    evaluation = learner.evaluate(2, seed=4)

    def act(observation):
        return learner.model(observation)[0].argmax(-1), None

    shown = SNAKES.scenes(PlayRequest(chosen, act, 4))
    assert [next(scene for scene in shown if scene.ended).score for _ in range(2)] == evaluation.returns


def test_a_game_has_a_scene_for_the_start_and_each_step():
    game = first_game(config(), "greedy", seed=1)
    assert len(game) == 30
    assert "game 1   step 0   score 0 : 0" in game[0].text
    first, last = game[0].drawing.paint(), game[-1].drawing.paint()
    assert first.dtype == np.uint8 and first.shape == last.shape


def test_a_logged_game_is_replayed(tmp_path):
    path = tmp_path / "game.json"
    SNAKES.write_log(config(), "greedy", 4, path)
    played = first_game(config(), "greedy", seed=4)
    shown = list(SNAKES.read_log(path))
    assert len(shown) == 31 and shown[-1].ended
    for one, other in zip(played, shown, strict=False):
        assert np.array_equal(one.drawing.paint(), other.drawing.paint())
        assert one.score == other.score


def test_games_are_logged_and_replayed_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fields = ["--preset", "debug", "--episode-length", "5"]
    assert main(["play", "snakes3v3", "--policy", "greedy", "--log", "game.json", *fields]) == 0
    assert main(["play", "snakes3v3", "--replay", "game.json"]) == 0
    out = capsys.readouterr().out
    assert "game.json   step 5" in out and "1 episode, 6 frames" in out
    assert main(["play", "snakes3v3", "--replay", "game.json", "--video", "game.gif"]) == 0
    assert (tmp_path / "game.gif").stat().st_size > 1000
    assert main(["play", "snakes3v3", "--policy", "random", "--max-frames", "3", *fields]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("play snakes3v3 --replay nothing.json", "nothing.json: cannot be read (No such file or directory)"),
        ("play snakes3v3 --policy greedy --log no/where.json", "the directory no does not exist"),
        ("play snakes3v3 --log game.json", "is a workload and has no weights"),
        (
            "play snake --policy random --log game.json",
            "snake: cannot write or replay games",
        ),
    ],
)
def test_wrong_arguments_of_play_are_refused_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    out = capsys.readouterr()
    assert message in out.err and out.err.count("\n") == 1


def test_the_legend_says_whose_team_is_whose():
    game = first_game(config(), "greedy", seed=1)
    ours, theirs = game[0].drawing.teams
    assert (ours.name, theirs.name) == ("greedy 0", f"{config().workload.eval_opponent} 0")
    assert list(ours.colours) == list(render.COLOURS[:3]) and list(theirs.colours) == list(render.COLOURS[3:])
    assert [snake.head for snake in game[0].drawing.snakes] == list(render.COLOURS)
    assert "greedy" in game[0].text.splitlines()[-2]


def test_names_in_a_strangers_log_cannot_reach_the_terminal_unescaped(tmp_path):
    path = tmp_path / "game.json"
    SNAKES.write_log(config(), "greedy", 4, path)
    log = json.loads(path.read_text())
    path.write_text(json.dumps({**log, "names": ["\x1b[2J", "b"]}))
    assert next(SNAKES.read_log(path)).drawing.teams[0].name == r"'\x1b[2J' 0"
    path.write_text(json.dumps({**log, "names": "nobody"}))
    assert next(SNAKES.read_log(path)).drawing.teams[1].name == "team 2 0"
