"""Resumes that are refused leave the run as it was."""

import pytest
import torch

from lockstep.cli import main

DEBUG = ["snake", "--preset", "debug", "--max-updates", "2", "--eval-every", "0"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one run, `a`."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", *DEBUG, "--runs-dir", str(folder), "--run-name", "a"]) == 0
    return folder


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--grid-size", "9"], "; a run keeps its network"),
        (["--lanes", "4"], "lanes is 8 there and 4 in this run"),
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
