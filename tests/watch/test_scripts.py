"""Functions of the page's scripts that need no browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import lockstep.watch

DOM = Path(lockstep.watch.__file__).parent / "static" / "dom.js"


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_a_duration_is_rounded_before_it_is_split():
    calls = "console.log(JSON.stringify([0, 9.96, 59.4, 59.7, 119.7, 3599.6, 7260, 172800].map(duration)));"
    program = DOM.read_text() + calls
    told = subprocess.run(["node", "--input-type=module"], input=program, capture_output=True, text=True, check=True)
    expected = ["0 s", "10 s", "59 s", "1 min 0 s", "2 min 0 s", "1 h 0 min", "2 h 1 min", "2 d 0 h"]
    assert json.loads(told.stdout) == expected
