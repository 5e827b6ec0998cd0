"""Lines that nobody reads: they are lost, and what says them goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.output import tell

SAYS = """
import sys, time
from lockstep.output import open_missing_streams, tell
open_missing_streams()
time.sleep(0.2)  # the reader has left by then
for number in range(3):
    tell(f"line {number}")
    tell(f"line {number}", sys.stderr)
"""


def run(code, how, **options):
    words = ["bash", "-c", f'set -o pipefail; "$@" {how}', "-", sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize("how", ["| true", "2>&1 | true", "> /dev/full", "2> /dev/full", ">&- 2>&- <&-"])
def test_whoever_speaks_ends_well_without_a_listener(how):
    if "/dev/full" in how and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = run(SAYS, how)
    assert done.returncode == 0
    assert "BrokenPipe" not in done.stderr and "OSError" not in done.stderr


def test_lines_go_where_they_belong(capsys):
    tell("out")
    tell("err", sys.stderr)
    assert capsys.readouterr() == ("out\n", "err\n")


def test_the_next_file_does_not_stand_for_a_stream_that_was_closed(tmp_path):
    code = f"{SAYS}\nfrom pathlib import Path\nPath('told').write_text(str(Path('file').open('w').fileno() > 2))"
    run(code, "<&- >&- 2>&-", cwd=tmp_path)
    assert (tmp_path / "told").read_text() == "True"
