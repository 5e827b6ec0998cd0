"""The package as it is installed: its name, its extras and the files that are no code."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRA = re.compile(r"lockstep(-train)?\[([a-z0-9]+)\]")


def test_every_extra_that_is_recommended_exists_and_is_not_another_projects():
    extras = set(PROJECT["project"]["optional-dependencies"])
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    found = {
        (path.name, match[0]): match
        for path in (*ROOT.glob("src/**/*.py"), *pages)
        for match in EXTRA.finditer(path.read_text())
    }
    assert len(found) > 10
    for place, match in found.items():
        assert match[1] and match[2] in extras, place


def test_every_file_that_is_no_code_is_named_as_part_of_the_package():
    package = ROOT / "src" / "lockstep"
    named = {path for glob in PROJECT["tool"]["setuptools"]["package-data"]["lockstep"] for path in package.glob(glob)}
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others and others <= named


@pytest.mark.slow
def test_the_wheel_works_outside_of_a_checkout(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("lockstep_train-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert (installed / "lockstep" / "watch" / "static" / "app.js").is_file()

    def lockstep(*words):
        # -P: nothing of the current folder is imported.
        command = [sys.executable, "-P", "-m", "lockstep", *words]
        environment = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        answer = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    lockstep("new", "maze")
    for target, run in (("snake", "a"), ("./maze/maze.py", "b")):
        words = ("--preset", "debug", "--max-updates", "2", "--run-name", run, "--device", "cpu")
        lockstep("train", target, *words, "--ranks", "2")
        lockstep("resume", run, "--max-updates", "3")
        lockstep("eval", run, "--episodes", "2")
        lockstep("verify", run)
        assert "report" in lockstep("report", run, "--no-film")
