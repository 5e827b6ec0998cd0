"""A workload from a folder outside the package, given as module:Class, can all that ours can."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.main import main
from lockstep.errors import UserError
from lockstep.workloads import registry

EXAMPLES = Path(__file__).parents[2] / "examples"
CORRIDOR = "corridor:Corridor"


@pytest.fixture
def outside(tmp_path, monkeypatch, capsys):
    """A working directory elsewhere, with nothing but the workload's own file."""
    for name in ("corridor.py", "reinforce.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    monkeypatch.chdir(tmp_path)

    def run(*words):
        if "2" not in words:
            # One rank needs no other process: importing torch anew costs seconds.
            assert main(list(words)) == 0, capsys.readouterr()
            return capsys.readouterr().out
        done = subprocess.run([sys.executable, "-m", "lockstep", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def weights_of(name):
    return Path("runs", name, "final", "model.safetensors").read_bytes()


def test_it_trains_resumes_evaluates_plays_and_ends_in_the_same_bits_on_any_number_of_ranks(outside):
    common = ("--preset", "debug", "--sync", "exact", "--device", "cpu", "--log-every", "10")
    outside("train", CORRIDOR, *common, "--ranks", "2", "--run-name", "whole")
    outside("train", CORRIDOR, *common, "--ranks", "1", "--run-name", "halves", "--max-updates", "10")
    assert weights_of("halves") != weights_of("whole")
    outside("resume", "halves", "--ranks", "2", "--max-updates", "0")
    assert weights_of("halves") == weights_of("whole")
    found = json.loads(outside("eval", "whole", "--episodes", "50", "--json"))
    assert found["workload"] == "corridor" and found["return_mean"] > 0.9, "it walks to the door"
    assert "@" in outside("play", "whole", "--episodes", "1")
    Path("film.gif").unlink(missing_ok=True)
    outside("play", "whole", "--video", "film.gif", "--episodes", "1")
    assert Path("film.gif").stat().st_size > 0
    assert "corridor" in outside("runs")
    outside("export", "whole", "--format", "csv", "--output", "policy.csv")
    assert float(Path("policy.csv").read_text().splitlines()[-2].split(",")[1]) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "reinforce:Reinforce"])
def test_it_is_proved(outside, algorithm):
    told = outside("verify", CORRIDOR, "--ranks", "1,2", "--device", "cpu", "--algorithm", algorithm)
    assert "same model on 1 to 2 ranks" in told


@pytest.mark.slow
def test_an_algorithm_from_outside_learns_it_and_resumes_to_the_same_bits(outside):
    common = ("--preset", "debug", "--algorithm", "reinforce:Reinforce", "--sync", "exact", "--device", "cpu")
    common += ("--reinforce.n-envs", "8", "--total-timesteps", str(20 * 256), "--log-every", "10")
    outside("train", CORRIDOR, *common, "--ranks", "2", "--run-name", "whole")
    outside("train", CORRIDOR, *common, "--ranks", "1", "--run-name", "halves", "--max-updates", "10")
    outside("resume", "halves", "--max-updates", "0", "--ranks", "1")
    assert weights_of("halves") == weights_of("whole")
    assert json.loads(outside("eval", "whole", "--episodes", "20", "--json"))["return_mean"] > 0.5


def test_its_settings_have_flags_and_help(outside):
    text = outside("train", CORRIDOR, "--help")
    assert "--cells" in text and "--learning-rate" in text and "--mlp-width" in text
    assert "cells: 5" in outside("plan", CORRIDOR, "--preset", "debug", "--corridor.cells", "5", "--ranks", "1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:Maze", "there is no module nowhere_at_all"),
        ("corridor:Maze", "corridor has no Maze; it has: .*Corridor"),
        ("corridor:CorridorEnv", "cannot be created .TypeError.*settings"),
        ("json:loads", "cannot be created .TypeError"),
        ("corridor:LEFT", "is neither a Workload nor an environment, nor a function that makes one"),
    ],
)
def test_what_is_no_workload_is_refused_in_one_line(name, message, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with pytest.raises(UserError, match=message) as refused:
        workload = registry.load(name)
        workload.fit(workload.preset("debug"), set())
    assert "\n" not in str(refused.value)
