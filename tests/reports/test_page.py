"""The report: one file that needs nothing else and lets nothing through."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lockstep.cli.main import main

VOID = {"meta", "img", "polyline", "br"}


class Page(HTMLParser):
    """Collects tags and attributes, and sees that every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.words = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def report(capsys, *words):
    assert main(["report", *words, "--no-film"]) == 0, capsys.readouterr().err
    return Path("report.html").read_text(encoding="utf-8")


def test_a_report_has_every_part_and_fetches_nothing(record, capsys):
    record("a", learning_rate=0.1)
    text = report(capsys, "a")
    page = Page(text)
    for part in (
        "Training",
        "Evaluation",
        "Speed",
        "Promises that were checked",
        "What happened",
        "Settings",
        "Machine",
    ):
        assert part in page.words
    assert "script" not in page.tags and not re.search(r"https?://|url\(|@import", text)
    assert not [value for name, value in page.attributes if name in ("src", "href")]
    assert "lockstep train snake --preset debug --seed=1 --learning-rate=0.1 --ranks 1 --run-name a-again" in text


def test_texts_of_files_are_escaped_everywhere(record, capsys):
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    path = record("a", data=f'"{hostile}"')
    for name in ("system.json", "events.jsonl", "evaluation.json"):
        file = path / name
        text = file.read_text()
        for harmless in ("2.13.0", "on 1 ranks", '"seed": 7'):
            text = text.replace(harmless, hostile if harmless[0] != '"' else f'"seed": "{hostile}"')
        assert hostile in text
        file.write_text(text)
    page = Page(report(capsys, "a"))
    assert "script" not in page.tags and "img" not in page.tags
    assert sum(hostile in word for word in page.words) >= 4


def test_a_command_that_no_text_file_can_hold_is_replaced(record, capsys):
    path = record("a")
    system = path / "system.json"
    system.write_text(system.read_text().replace('"debug"', '"\\ud800"'))
    assert "--preset &#x27;?&#x27;" in report(capsys, "a")


def test_several_runs_share_charts_and_say_whether_they_are_the_same(record, capsys):
    record("one")
    record("two", ranks=2)
    record("other", seed=2, curve=[5.0] * 10, weights=(7.0, 8.0))
    text = report(capsys, "one", "two", "other")
    assert "one and two: the same bits at each of 10 steps" in text
    assert "one and other: different weights" in text
    assert text.count('class="line c0"') == text.count('class="legend"') // 3 * 2, "a dash of the legend, and the curve"
    # The second run lies on the first: it is dashed, so that both colours show.
    assert text.count('class="line c1"') > text.count('class="line c2"')


def test_a_damaged_checkpoint_stands_in_the_report(record, capsys):
    path = record("a")
    (path / "checkpoints" / "step-000000000050" / "state.json").write_text("[]")
    assert "a/checkpoints/step-000000000050: state.json: content changed" in report(capsys, "a")
    assert "not hashed" in report(capsys, "a", "--no-verify")


def test_a_run_with_nothing_but_settings_has_a_report(record, capsys):
    path = record("a")
    for name in ("metrics.jsonl", "evaluation.json", "system.json", "status.json"):
        (path / name).unlink()
    text = report(capsys, "a")
    assert "there are no curves" in text and "No evaluation is recorded" in text


def test_charts_are_written_as_pictures_too(record, capsys, tmp_path):
    record("a")
    report(capsys, "a", "--png", "pictures")
    assert {"rollout-return_mean.png", "time-global_fps.png"} <= {
        path.name for path in (tmp_path / "pictures").iterdir()
    }


def test_no_torch_is_imported(record):
    record("a")
    code = (
        "import sys; from lockstep.cli.main import main;"
        "failed = main(['report', 'a', '--no-film']) or main(['compare', 'a', 'a']);"
        "sys.exit(failed or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "0 runs named"),
        (["missing"], "neither a run"),
        (["a", "--out", "runs"], "is a directory"),
        (["a", "--out", "no/where.html"], "does not exist"),
        (["a", "--png", "file"], "is a file; give a folder"),
        (["a", "--films"], "the nearest name is"),
    ],
)
def test_wrong_words_get_one_line(record, capsys, tmp_path, words, expected):
    record("a")
    (tmp_path / "file").write_text("")
    assert main(["report", *words, "--no-film"]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
