"""`lockstep arena`: who may play, and the table."""

import json
import sys

import pytest

from lockstep.cli.main import main
from lockstep.cli.results.arena import USAGE, ArenaOptions


def test_a_run_and_scripted_players_end_in_a_table(at_team, capsys):
    words = ["arena", "greedy", "random", "team", "--games", "4", "--device", "cpu"]
    assert main(words) == 0
    text, progress = capsys.readouterr()
    assert text.splitlines()[0].split()[:3] == ["player", "Elo", "95%"] and len(text.splitlines()) == 4
    assert progress.count("\n") == 3, "a line for every two players"
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {player["name"] for player in found["players"]} == {"greedy", "random", "team"}
    assert sum(player["elo"] for player in found["players"]) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "0 players named"),
        (["greedy"], "1 player named"),
        (["greedy", "greedy"], "greedy is named twice; name each player once"),
        (["greedy", "gredy"], "neither a run"),
        (["greedy", "random", "--games", "3"], "2, 4, 6"),
        (["greedy", "random", "--gmes", "4"], "the nearest name is games"),
        (["greedy", "random", "--workload", "snake"], "cannot let several players meet"),
    ],
)
def test_wrong_words_get_one_line(tmp_path, monkeypatch, capsys, words, expected):
    monkeypatch.chdir(tmp_path)
    assert main(["arena", *words]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


@pytest.mark.parametrize("save", ["taken", "taken/games"])
def test_a_folder_that_cannot_be_made_is_refused_before_any_model_is_loaded(tmp_path, monkeypatch, capsys, save):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    monkeypatch.setattr("lockstep.workloads.registry.load", lambda *_: pytest.fail("loaded"))
    assert main(["arena", "greedy", "random", "--games", "2", "--save", save]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lockstep: --save ") and error.count("\n") == 1


def test_the_usage_shows_the_default_number_of_games():
    assert f"[--games {ArenaOptions().games}]" in USAGE


@pytest.mark.parametrize(("platform", "flags"), [("darwin", []), ("win32", ["--trust"])])
def test_where_a_submission_cannot_be_locked_in_it_is_refused(tmp_path, monkeypatch, capsys, platform, flags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "submission.py").write_text("")
    monkeypatch.setattr(sys, "platform", platform)
    assert main(["arena", "random", "submission.py", "--games", "2", *flags]) == 2
    error = capsys.readouterr().err
    assert "--trust" in error and error.count("\n") == 1
