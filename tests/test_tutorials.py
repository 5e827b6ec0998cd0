"""The tutorials, as a reader follows them: their commands and Python blocks run in order, in a folder of their own."""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

import lockstep
from lockstep import api
from lockstep.cli.main import main

ROOT = Path(__file__).parents[1]
SHORT = {"max_updates": 2, "threads": 1, "eval_every": 0, "device": "cpu"}
STARTS_RANKS = ("verify",)
"""Commands that take longer than a reader of the short tests waits; `make test-slow` runs them."""


def blocks(page):
    """The page's blocks of code: ("python" or "", text)."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)


def shortened(line):
    """The words of a command, with sizes that take a second."""
    # Two ranks are two more processes; tests of ranks are elsewhere.
    words = shlex.split(re.sub(r" --ranks \d+ ", " ", line))
    if words[1] == "train":
        return [*words, *(word for key, value in SHORT.items() for word in (f"--{key}".replace("_", "-"), str(value)))]
    return [*words, "--ranks", "1", "--steps", "60"] if words[1] == "check" else words


@pytest.fixture
def followed(tmp_path, monkeypatch, capsys):
    """Follow a page in a new folder that holds the examples; runs that it starts are short."""
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    train = api.train
    monkeypatch.setattr(api, "train", lambda *given, **settings: train(*given, **(settings | SHORT)))
    monkeypatch.setattr(lockstep, "train", api.train, raising=False)

    def follow(page, skipped):
        names = {}
        for language, text in blocks(page):
            if language == "python":
                exec(compile(text, page, "exec"), names)
                continue
            for line in text.splitlines():
                words = shlex.split(line)
                if words[:1] == ["cd"]:
                    os.chdir(words[1])
                elif words[:1] == ["lockstep"] and words[1] not in skipped:
                    assert main(shortened(line)[1:]) == 0, f"{line}\n{capsys.readouterr().err}"

    return follow


PAGES = ["own-environment.md", "own-data.md", "own-algorithm.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_tutorial_runs(followed, page):
    followed(page, skipped=STARTS_RANKS)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_proof_of_a_tutorial_holds(followed, page):
    followed(page, skipped=())
