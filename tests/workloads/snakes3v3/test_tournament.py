"""An arena with honest and hostile submissions."""

import os
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.contests import ArenaRequest, Contestant
from lockstep.workloads.snakes3v3.competition import submission_player
from lockstep.workloads.snakes3v3.competition.export import export_submission
from lockstep.workloads.snakes3v3.competition.gamelog import read_log
from lockstep.workloads.snakes3v3.competition.submission_player import GIVE_UP, SubmissionTeam
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3
from lockstep.workloads.snakes3v3.matches.players import policy_of
from lockstep.workloads.snakes3v3.matches.tournament import hold_arena
from lockstep.workloads.snakes3v3.workload import Snakes3v3

CPU = torch.device("cpu")
HEAD = "def my_controller(observation, action_space, is_act_continuous=False):\n"


def can_isolate():
    """Whether this machine lets a process make namespaces of its own."""
    try:
        done = subprocess.run(["unshare", "--user", "--net", "--mount", "--pid", "--fork", "true"], check=False)
    except OSError:
        return False
    return done.returncode == 0


isolated_only = pytest.mark.skipif(not can_isolate(), reason="namespaces are not allowed here")


def submission(folder, body):
    folder.mkdir(exist_ok=True)
    (folder / "submission.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    return folder


def scripted(name):
    return Contestant(name, Snakes3v3().preset("base"))


def played(*players, games=2, limit=0.5, **options):
    request = ArenaRequest(games, 1, limit, 1 << 30, **options)
    return hold_arena(players, request, CPU)


def team(path, limit=5.0):
    return SubmissionTeam(path, limit, 1 << 30, isolated=True)


def game(boards=1):
    found = SnakesGame(SNAKES_3V3, torch.arange(boards), 3, CPU)
    found.reset()
    return found


@isolated_only
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("while True: pass", "took longer than"),
        ("import time; time.sleep(60)", "took longer than"),
        ("x = []\nwhile True: x.append(bytearray(1 << 26))", "MemoryError"),
        ("raise KeyError('oops')", "raised \"KeyError: 'oops'\""),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "its process ended"),
        ("import os; os.kill(1, 9); os.kill(-1, 9)", "ProcessLookupError"),
        ("return [[1, 1, 0, 0]]", "not one-hot lists"),
        ("return 'up'", "not one-hot lists"),
        ("return [[0] * 10**6]", "answered with too much"),
        ("return {1, 2}", "TypeError"),
        ("import socket; socket.create_connection(('127.0.0.1', 22), 1)", "OSError"),
        ("open('/usr/hello', 'w')", "Read-only file system"),
        ("open('/submission/submission.py', 'a')", "Errno"),
        ("import os\nfor _ in range(10**4): os.fork()", "BlockingIOError"),
    ],
)
def test_a_hostile_submission_loses_its_game_with_one_line(tmp_path, body, expected):
    limit = 0.5 if expected == "took longer than" else 20.0
    with team(submission(tmp_path / "hostile", body), limit) as hostile:
        assert hostile(game(), (0, 1, 2)).tolist() == [[0, 0, 0]]
        (reason,) = hostile.failures[0].values()
    assert expected in reason and "\n" not in reason and len(reason) < 200


@isolated_only
def test_a_submission_sees_no_files_variables_or_processes_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    (tmp_path / "outside").write_text("secret")
    body = f"""
        import os, pathlib
        seen = [os.path.exists({str(tmp_path / "outside")!r}), "SECRET_TOKEN" in os.environ, os.path.exists("/home")]
        seen += [os.getpid() != 1, os.path.exists("/proc/1"), os.path.exists("/etc/passwd"), os.listdir("/old") != []]
        pathlib.Path("/tmp/note").write_text("allowed")
        raise RuntimeError(str([i for i, bad in enumerate(seen) if bad]))
    """
    with team(submission(tmp_path / "curious", body)) as curious:
        curious(game(), (0, 1, 2))
        assert list(curious.failures[0].values()) == ["raised 'RuntimeError: []'"]


@isolated_only
def processes():
    """The command lines of all processes."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    # Ignores signals, leaves its group and forks before it loops.
    body = """
        import os, signal
        for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0: os.setsid()
        while True: pass
    """
    with SubmissionTeam(submission(tmp_path / "stubborn", body), 0.5, 1 << 30, isolated=True) as stubborn:
        stubborn(game(), (0, 1, 2))
    assert list((tmp_path / "tmp").iterdir()) == []
    # What was killed may need a moment to disappear on a busy machine.
    deadline = time.monotonic() + 20
    while str(tmp_path) in (listed := processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert str(tmp_path) not in listed


@isolated_only
def test_after_some_failures_in_a_row_it_is_not_asked_any_more(tmp_path):
    with team(submission(tmp_path / "broken", "raise ValueError")) as broken:
        broken(game(boards=5), (0, 1, 2))
        reasons = list(broken.failures[0].values())
    assert sum("ValueError" in reason for reason in reasons) == GIVE_UP
    assert reasons[GIVE_UP:] == ["not asked any more after 3 failures in a row"] * 2


@isolated_only
def test_answers_ahead_of_the_questions_are_refused(tmp_path):
    body = """
        import os, time
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, b"[[[1, 0, 0, 0]], [[1, 0, 0, 0]], [[1, 0, 0, 0]]]\\n" * 50)
            except OSError:
                pass
        time.sleep(60)
    """
    boards = game()
    with team(submission(tmp_path / "hasty", body)) as hasty:
        hasty(boards, (0, 1, 2))
        hasty(boards, (0, 1, 2))
        assert "answered before it was asked" in hasty.failures[0][0]


@isolated_only
def test_an_exported_team_moves_as_its_network_does(tmp_path):
    torch.manual_seed(1)
    actor = torch.nn.Sequential(torch.nn.Linear(26, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    export_submission(actor, "jidi26", tmp_path / "team")
    network = policy_of(lambda seen: (actor(seen.float()).argmax(-1), None), "jidi26")
    boards = game(boards=2)
    with torch.no_grad(), team(tmp_path / "team" / "submission.py") as exported:
        for _ in range(12):
            expected = torch.cat((network(boards, (0, 1, 2)), network(boards, (3, 4, 5))), dim=1)
            assert exported(boards, (3, 4, 5)).tolist() == expected[:, 3:].tolist()
            boards.step(expected)
        assert exported.failures == [{}]


@isolated_only
def test_who_breaks_the_rules_loses_whatever_the_score(tmp_path):
    # Fails in the third step, when nobody may have a point yet.
    body = "observation['last_direction'] is None or 1 / 0\nreturn [[1, 0, 0, 0]]"
    tally = played(scripted("random"), submission(tmp_path / "late", body))
    name = str(tmp_path / "late")
    assert tally.wins.tolist() == [[0, 2], [0, 0]] and len(tally.forfeits[name]) == 2
    lines = tally.table().splitlines()
    assert lines[1].startswith("random") and "lost 2 games by breaking the rules" in lines[-1]
    assert all(len(line) <= 80 for line in lines[:-1])


def test_scripted_players_are_ordered_by_strength(tmp_path):
    tally = played(scripted("random"), scripted("greedy"), scripted("level1"), games=20)
    summary = tally.summary()
    assert [player["name"] for player in summary["players"]] == ["greedy", "level1", "random"]
    assert all(player["wins"] + player["draws"] + player["losses"] == 40 for player in summary["players"])
    assert summary["differences"][1]["players"] == ["greedy", "random"] and summary["differences"][1]["low"] > 0


def test_saved_games_can_be_replayed_and_give_the_same_results(tmp_path):
    tally = played(scripted("greedy"), scripted("random"), save=tmp_path / "games")
    files = sorted((tmp_path / "games").iterdir())
    assert [file.name for file in files] == ["1-2-game-0001.json", "1-2-game-0002.json"]
    logs = [read_log(file) for file in files]
    assert [log["names"] for log in logs] == [["greedy", "random"], ["random", "greedy"]]
    scores = [[sum(log["n_return"][:3]), sum(log["n_return"][3:])] for log in logs]
    assert tally.scores[0] == [scores[0][0], scores[1][1]]
    assert logs[0]["init_info"] == logs[1]["init_info"], "both sides start from the same position"


def test_a_folder_without_a_submission_and_one_that_is_too_large_are_refused(tmp_path):
    with pytest.raises(UserError, match="no submission"):
        team(tmp_path)
    submission(tmp_path / "large", "pass")
    with (tmp_path / "large" / "weights").open("wb") as file:
        os.truncate(file.fileno(), 1 << 30)
    with pytest.raises(UserError, match="a folder of its own"):
        team(tmp_path / "large")


def test_a_machine_without_namespaces_refuses_and_names_the_way_out(tmp_path, monkeypatch):
    # The same program, on a machine whose kernel refuses.
    broken = tmp_path / "sandbox.py"
    text = submission_player.SANDBOX.read_text()
    start = "    spaces = _NEWNS"
    assert start in text
    broken.write_text(text.replace(start, f"    raise OSError(1, 'unshare: not allowed')\n{start}"))
    monkeypatch.setattr(submission_player, "SANDBOX", broken)
    with team(submission(tmp_path / "any", "return [[1, 0, 0, 0]]")) as any_team:
        with pytest.raises(UserError, match="--trust") as refused:
            any_team(game(), (0, 1, 2))
        assert "unshare: not allowed" in str(refused.value)


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_a_trusted_submission_plays_without_namespaces(tmp_path):
    with SubmissionTeam(submission(tmp_path / "own", "return [[0, 0, 0, 1]]"), 5, 1 << 32, isolated=False) as own:
        assert own(game(), (0, 1, 2)).tolist() == [[3, 3, 3]] and own.failures == [{}]
