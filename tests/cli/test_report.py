"""`lockstep report` on a stored model: the film, and what stands in its place."""

import shutil
from pathlib import Path

import pytest

from lockstep.cli.main import main


def test_the_film_of_a_model_is_inside_the_page(at_runs, capsys):
    assert main(["report", "demo"]) == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert 'src="data:image/gif;base64,R0lGOD' in page and "mean return" in page


def test_a_run_without_weights_has_a_sentence_instead_of_a_film(at_runs, capsys):
    shutil.rmtree(at_runs / "final")
    assert main(["report", "demo"]) == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "data:image/gif" not in page and "demo: no film: " in page


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--png", "file.txt"], "--png file.txt: is a file; give a folder"),
        (["--png", "no/where"], "--png 'no/where': the directory no does not exist; give a folder"),
        (["--out", "file.txt/a.html"], "file.txt is a file; give the path of a .html file"),
        (["--film", "maybe"], "run 'maybe': neither a run in runs nor a directory with a config.yaml"),
        (["--film", "maybe"], "; --film takes true, false or nothing\n"),
    ],
)
def test_places_that_cannot_be_written_and_switches_are_named_before_anything_is_filmed(at_runs, capsys, words, told):
    Path("file.txt").write_text("")
    assert main(["report", "demo", *words]) == 2
    assert told in capsys.readouterr().err and not Path("report.html").exists()


def test_a_file_that_is_no_page_is_not_overwritten(at_runs, capsys):
    Path("precious.txt").write_text("mine")
    assert main(["report", "demo", "--no-film", "--out", "precious.txt"]) == 2
    assert (
        "--out precious.txt: is not the name of an HTML file; give the path of a .html file" in capsys.readouterr().err
    )
    assert Path("precious.txt").read_text() == "mine"
