"""Output that nobody reads is dropped, and the process continues."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.output import accept_any_character, fitted, tell

SAYS = """
import sys, time
from lockstep.output import open_missing_streams, tell
open_missing_streams()
time.sleep(0.2)  # the reader has exited by then
for number in range(3):
    tell(f"line {number}")
    tell(f"line {number}", sys.stderr)
"""


def run(code, how, **options):
    argv = ["bash", "-c", f'set -o pipefail; "$@" {how}', "-", sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize("how", ["| true", "2>&1 | true", "> /dev/full", "2> /dev/full", ">&- 2>&- <&-"])
def test_a_process_ends_normally_if_its_output_cannot_be_written(how):
    if "/dev/full" in how and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = run(SAYS, how)
    assert done.returncode == 0
    assert "BrokenPipe" not in done.stderr and "OSError" not in done.stderr


def test_lines_go_to_the_given_stream(capsys):
    tell("out")
    tell("err", sys.stderr)
    assert capsys.readouterr() == ("out\n", "err\n")


def test_the_next_file_opened_does_not_take_the_number_of_a_closed_stream(tmp_path):
    code = f"{SAYS}\nfrom pathlib import Path\nPath('result').write_text(str(Path('file').open('w').fileno() > 2))"
    run(code, "<&- >&- 2>&-", cwd=tmp_path)
    assert (tmp_path / "result").read_text() == "True"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("one two three four five", ["one two three", "  four five"]),
        ("    one two three four", ["    one two", "      three", "      four"]),
        ("ab  one two three", ["ab  one two", "    three"]),
        ("a/path/that/is/longer", ["a/path/that/is/longer"]),
        ("short", ["short"]),
    ],
)
def test_a_long_line_is_broken_between_words_and_continued_under_itself(line, expected):
    assert fitted(line, 14) == expected
    assert fitted(line, None) == [line]


def test_a_plan_is_continued_behind_its_labels():
    assert fitted(f"{'environments':12} sixteen of them", 30) == ["environments sixteen of them"]
    assert fitted(f"{'environments':12} sixteen of them and more", 30) == [
        "environments sixteen of them",
        "             and more",
    ]
    assert fitted(f"{'at once':12} two of one rank each", 30) == ["at once      two of one rank", "             each"]


def test_prose_is_not_taken_for_a_label():
    assert fitted("Sharpe 1.86, Sortino 2.54, turnover 0.72", 30) == ["Sharpe 1.86, Sortino 2.54,", "  turnover 0.72"]


def test_a_terminal_that_is_not_utf_8_gets_similar_characters(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    accept_any_character()
    tell("a name… é 10 \u00d7 10 → \udc80 雪")
    assert raw.getvalue() == b"a name~ e 10 x 10 -> ? ?\n"


def test_a_board_in_ascii_keeps_its_shape_and_its_marks_apart(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    accept_any_character()
    board = ["╭───╮", "│●━┓│", "│◆ ╹│", "╰───╯", "████ 5…", "0■ 3□"]
    for line in board:
        tell(line)
    printed = raw.getvalue().decode().splitlines()
    assert printed == ["+---+", "|@-+|", "|* ||", "+---+", "#### 5~", "0# 3o"]
    assert list(map(len, printed)) == list(map(len, board))
