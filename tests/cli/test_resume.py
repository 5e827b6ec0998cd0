"""Resumes: what goes on, and that those which are refused leave the run as it was."""

import re
import shutil

import pytest
import torch

from lockstep.cli.main import main
from lockstep.storage.run_directory import RunDirectory

DEBUG = ["snake", "--preset", "debug", "--max-updates", "2", "--eval-every", "0"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one run, `a`."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", *DEBUG, "--runs-dir", str(folder), "--run-name", "a"]) == 0
    return folder


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_a_part_of_a_run_is_sent_to_its_run(tmp_path, capsys):
    for part, told in (
        ("checkpoints/step-000000000512", r"is a checkpoint; .*`lockstep resume \S+/a --from step-000000000512`"),
        ("best", r"holds only weights, .*`lockstep resume \S+/a`, or start a new one from them with --load-model"),
    ):
        (tmp_path / "a" / part).mkdir(parents=True)
        (tmp_path / "a" / part / "manifest.json").write_text("{}")
        assert main(["resume", f"a/{part}", "--runs-dir", str(tmp_path)]) == 2
        assert re.search(told, last_line(capsys))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--grid-size", "9"], "was made with --grid-size 6 and not 9, and a run keeps its network ("),
        (["--n-envs", "32"], "was made with --n-envs 16 and not 32: give the settings it had ("),
        (["--lanes", "4"], "lanes is 8 in the checkpoint and 4 in this run"),
        pytest.param(
            ["--device", "mps"],
            "no Apple GPU is visible here; use --device cpu",
            marks=pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is an Apple GPU"),
        ),
    ],
)
def test_a_refused_resume_is_one_line_and_leaves_the_configuration(runs, capsys, words, told):
    before = (runs / "a" / "config.yaml").read_bytes()
    assert main(["resume", "a", "--runs-dir", str(runs), *words]) == 2
    assert told in last_line(capsys)
    assert (runs / "a" / "config.yaml").read_bytes() == before


def test_a_run_is_found_by_name_in_another_folder_and_goes_on_with_what_is_changed(runs):
    assert main(["resume", "a", "--runs-dir", str(runs), "--max-updates", "3"]) == 0
    assert "max_updates: 3" in (runs / "a" / "config.yaml").read_text()


def test_a_refused_start_does_not_use_up_the_name(tmp_path, capsys):
    words = ["--runs-dir", str(tmp_path), "--run-name", "b"]
    assert main(["train", "control", "--preset", "debug", "task=Foo-v1", *words]) == 2
    assert main(["train", *DEBUG, *words]) == 0


def test_a_run_that_a_limit_ended_goes_on_by_the_same_command_with_more_of_it(tmp_path, capsys):
    words = ["train", "snake", "--preset", "debug", "--runs-dir", str(tmp_path), "--run-name", "b"]
    assert main([*words, "--max-updates", "1"]) == 0
    assert "stopped by --max-updates" in capsys.readouterr().out
    assert RunDirectory(tmp_path / "b").status().state == "stopped"
    assert main([*words, "--max-updates", "0", "--total-timesteps", "5120"]) == 0
    assert RunDirectory(tmp_path / "b").status().state == "finished"
    assert main(words) == 2
    assert f"`lockstep resume {tmp_path / 'b'} --total-timesteps N`" in last_line(capsys)
    assert main(["resume", str(tmp_path / "b")]) == 0
    assert "the run is at its end: give it more with --total-timesteps N" in capsys.readouterr().out


def test_checkpoints_that_nobody_knows_the_experiment_of_are_left_alone(runs, tmp_path, capsys):
    shutil.copytree(runs / "a", tmp_path / "a")
    (tmp_path / "a" / "config.yaml").unlink()
    assert main(["train", *DEBUG, "--runs-dir", str(tmp_path), "--run-name", "a"]) == 2
    assert "has checkpoints but no config.yaml" in last_line(capsys)


def test_a_folder_that_was_renamed_is_a_run_of_that_name(runs, tmp_path):
    shutil.copytree(runs / "a", tmp_path / "other")
    assert main(["resume", "other", "--runs-dir", str(tmp_path), "--max-updates", "4"]) == 0
    assert "run_name: other" in (tmp_path / "other" / "config.yaml").read_text()
