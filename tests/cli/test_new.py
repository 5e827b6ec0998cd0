"""`lockstep examples` from a checkout; tests/test_package.py has the same from a wheel."""

from pathlib import Path

import pytest

from lockstep.cli import new
from lockstep.cli.completion import candidates
from lockstep.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_file_of_the_examples_is_listed_with_what_it_shows(capsys):
    assert main(["examples"]) == 0
    told = capsys.readouterr().out
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    lines = told.splitlines()[: len(files)]
    names = {path.relative_to(EXAMPLES).as_posix().removesuffix(".py") for path in files}
    assert {line.split()[0] for line in lines} == names
    assert all(len(line.split()) > 4 for line in lines), "each says what it shows"


@pytest.mark.parametrize("name", ["maze", "maze.py", "examples/maze.py"])
def test_an_example_is_printed_as_it_is(name, capsys):
    assert main(["examples", name]) == 0
    assert capsys.readouterr().out == (EXAMPLES / "maze.py").read_text()


def test_an_example_is_copied_and_never_over_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "slurm/train.sbatch", "--into", "."]) == 0
    assert (tmp_path / "train.sbatch").read_text() == (EXAMPLES / "slurm" / "train.sbatch").read_text()
    (tmp_path / "train.sbatch").write_text("mine")
    assert main(["examples", "slurm/train.sbatch", "--into", "."]) == 2
    assert "already exists" in capsys.readouterr().err and (tmp_path / "train.sbatch").read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("examples maz", "the nearest is maze"),
        ("examples maze corridor", "allowed: one"),
        ("examples maze --into nowhere", "no such folder"),
        ("examples ../pyproject.toml", "no such example"),
    ],
)
def test_what_is_no_example_is_one_line(line, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_names_of_examples_and_shells_are_completed():
    assert candidates(["examples", "ma"]) == ["maze"]
    assert candidates(["completion", ""]) == ["bash", "zsh", "fish"]


def test_a_package_below_a_folder_called_runs_has_its_examples(tmp_path, monkeypatch, capsys):
    package = tmp_path / "runs" / "lockstep"
    monkeypatch.setattr(new, "__file__", str(package / "cli" / "new.py"))
    (package / "examples" / "runs").mkdir(parents=True)
    (package / "examples" / "runs" / "left_behind.py").write_text("")
    assert main(["examples"]) == 2
    assert capsys.readouterr().err.endswith("the examples are missing; install lockstep-train again\n")
    (package / "examples" / "maze.py").write_text('"""A maze."""')
    assert main(["examples"]) == 0
    assert capsys.readouterr().out.startswith("maze  A maze.\n")
