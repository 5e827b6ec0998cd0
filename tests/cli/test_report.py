"""`lockstep report` on a stored model: the film, and what stands in its place."""

import shutil
from pathlib import Path

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
