"""`lockstep eval --team A --against B`: two teams meet, from both sides."""

import json

import pytest

from lockstep.cli.main import main


def results(capsys, *words):
    assert main(["eval", *words, "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys, *words):
    assert main(["eval", *words]) == 2
    out = capsys.readouterr()
    assert out.out == "" and out.err.count("\n") == 1 and out.err.startswith("lockstep: ")
    return out.err


def test_a_scripted_team_meets_another_on_both_sides(capsys):
    found = results(capsys, "snakes3v3", "--team", "greedy", "--against", "random", "--episodes", "20", "--seed", "3")
    assert (found["workload"], found["games"], found["seed"]) == ("snakes3v3", 20, 3)
    assert [side["name"] for side in found["sides"]] == ["greedy", "random"]
    assert found["wins"] >= 17 and found["wins"] + found["losses"] + found["draws"] == 20
    again = results(capsys, "snakes3v3", "--policy", "greedy", "--against", "random", "--episodes", "20", "--seed", "3")
    assert again == found


def test_a_run_meets_a_scripted_team_itself_and_is_named(at_team, capsys):
    one = results(capsys, "team", "--against", "greedy", "--episodes", "4")
    other = results(
        capsys, "snakes3v3", "--team", "team", "--against", "greedy", "--episodes", "4", "--preset", "debug"
    )
    assert one["wins"] == other["wins"] and one["sides"][0]["score"] == other["sides"][0]["score"]
    assert [side["name"] for side in other["sides"]] == ["team", "greedy"]
    mirrored = results(capsys, "team", "--against", "team", "--episodes", "4")
    # The two halves begin alike, and the same team on both sides plays them alike.
    assert mirrored["wins"] == mirrored["losses"]
    assert not (at_team / "evaluation.json").exists()


def test_a_table_is_printed_and_written_where_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["snakes3v3", "--team", "greedy", "--against", "random", "--episodes", "4", "--output", "met.json"]
    assert main(["eval", *words]) == 0
    assert "greedy against random, 4 games" in capsys.readouterr().out
    assert json.loads((tmp_path / "met.json").read_text())["games"] == 4


def test_a_team_is_exported_as_a_folder_for_the_competition(at_team, capsys):
    assert main(["export", "team", "--format", "submission"]) == 0
    folder = at_team / "export" / "step-000000000005"
    assert sorted(path.name for path in folder.iterdir()) == ["submission.py", "weights.npz"]
    assert "submission" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("snakes3v3 --team greedy", "--team greedy: the opponent is missing; add --against"),
        ("snakes3v3 --against greedy", "is a workload and has no weights; give a run of it"),
        ("snakes3v3 --team gredy --against random", "--team gredy: .*the nearest baseline is greedy"),
        ("snakes3v3 --team greedy --against no-such-run", "--against no-such-run: .*baselines are random, level1"),
        ("snakes3v3 --team greedy --against random --episodes 3", "episodes 3: allowed: 2, 4, 6"),
        (
            "snake --team random --against random",
            "snake: cannot play one team against another; .*: snakes3v3",
        ),
        ("snakes3v3 --team greedy --against random --output no/where.json", "the directory no does not exist"),
    ],
)
def test_what_cannot_meet_is_told_in_one_line(tmp_path, monkeypatch, capsys, words, message):
    import re

    monkeypatch.chdir(tmp_path)
    assert re.search(message, complaint(capsys, *words.split()))
