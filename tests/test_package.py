"""The package as it is installed: its name, its extras, the files that are no code, and the release checklist."""

import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from lockstep import version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SPEC = importlib.util.spec_from_file_location("release_check", ROOT / "release" / "check.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)
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


def test_one_version_is_stated_everywhere_and_another_is_found(monkeypatch):
    assert release.check_version().startswith(f"{version.__version__} in ")
    monkeypatch.setattr(release, "versions", lambda: {"version.py": "0.2.0", "CITATION.cff": "0.1.0"})
    with pytest.raises(release.Failed, match=r"version.py has 0.2.0, CITATION.cff has 0.1.0"):
        release.check_version()


def test_the_distribution_has_the_name_that_is_ours():
    assert release.check_name().startswith("lockstep-train; ")


@pytest.mark.parametrize(
    ("names", "told"), [({"a.py"}, "lacks 1 files, such as app.js"), ({"a.py", "app.js", "x"}, "such as x")]
)
def test_a_wheel_with_too_little_or_too_much_fails(names, told, tmp_path, monkeypatch):
    monkeypatch.setattr(release, "package_files", lambda: {"a.py", "app.js"})
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    with pytest.raises(release.Failed, match=told):
        release.check_wheel(release.Built(wheel, wheel))


def test_a_check_that_fails_is_a_line_and_the_others_go_on(capsys):
    def fails():
        raise release.Failed("a reason")

    checks = release.Checklist()
    assert checks.hold("one", fails) is None and checks.hold("two", lambda: "good") == "good"
    assert not checks.good
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["FAILED", "one", "a", "reason"],
        ["ok", "two", "good"],
    ]


def test_a_checkout_on_the_path_is_not_what_the_release_check_tests(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert release._run([sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]) == "None\n"


@pytest.mark.slow
def test_everything_that_a_release_needs_holds(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("twine")
    command = [sys.executable, str(ROOT / "release" / "check.py"), "--borrow"]
    # Without PYTHONPATH: only the wheel that was built has lockstep.
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("ready to be published\n")
