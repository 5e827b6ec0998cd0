"""What the Tab key offers, and that a real bash gets it."""

import os
import shutil
import subprocess
import sys

import pytest

from lockstep.cli.completion import candidates
from lockstep.cli.main import VERBS, main


def test_the_first_word_is_a_verb():
    assert candidates([]) == [*VERBS, "help"]
    assert candidates(["ev"]) == ["eval"] and candidates(["help", "exp"]) == ["export"]


def test_workloads_and_runs_follow_the_verbs_that_take_them(at_runs):
    assert candidates(["train", "snake"]) == ["snake", "snakes3v3"]
    assert candidates(["resume", ""]) == [at_runs.name] == ["demo"]
    assert candidates(["eval", ""])[0] == "demo" and "cricket" in candidates(["eval", ""])


@pytest.mark.parametrize("verb", ["watch", "report", "compare", "arena", "predict", "trade", "export"])
def test_every_verb_about_a_run_offers_runs(at_runs, verb):
    assert candidates([verb, ""]) == ["demo"]


def test_verbs_about_several_runs_offer_those_not_yet_named(at_runs):
    shutil.copytree("runs/demo", "runs/other")
    for verb in ("watch", "report", "compare", "arena"):
        assert candidates([verb, "demo", ""]) == ["other"]
    assert candidates(["report", "--out", "page.html", "de"]) == ["demo"]
    # After the run these take other files, or nothing.
    assert candidates(["predict", "demo", ""]) == candidates(["eval", "demo", ""]) == []


def test_flags_are_those_of_the_verb_and_of_the_workload():
    assert candidates(["train", "snake", "--grid"]) == ["--grid-size"]
    assert candidates(["train", "cricket", "--grid"]) == []
    assert "--nnodes" in candidates(["train", "--n"]) and "--n-envs" not in candidates(["train", "--n"])
    assert candidates(["runs", "--js"]) == ["--json"]


def test_values_are_offered_where_there_is_a_choice():
    assert candidates(["train", "snake", "--preset", "sm"]) == ["small"]
    assert candidates(["train", "gym", "--algorithm", "t"]) == ["tdmpc2"]
    assert candidates(["train", "snake", "--sync", ""]) == ["auto", "fast", "exact"]
    assert candidates(["train", "snake", "--deterministic", "t"]) == ["true"]
    assert candidates(["train", "snake", "--seed", ""]) == []


@pytest.mark.parametrize("words", [["nosuch", ""], ["train", "nosuch", "--"], ["train", "./evil.py", "--preset", ""]])
def test_half_a_command_that_is_wrong_offers_nothing_and_runs_nothing(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('touched', 'w')")
    offered = candidates(words)
    assert not (tmp_path / "touched").exists()
    # After a name that is unknown or not ours, the verb's own flags are all that is known.
    assert set(offered) == (set(candidates(["train", "--"])) if words[-1] == "--" else set())


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_with_the_printed_script(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    command = tmp_path / "lockstep"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lockstep "$@"\n')
    command.chmod(0o755)
    asked = f"{script}\nCOMP_WORDS=(lockstep train snake --preset sm); COMP_CWORD=4; _lockstep; echo ${{COMPREPLY[@]}}"
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=path, check=True)
    assert answer.stdout == "small\n"
