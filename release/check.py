"""`make release-check`: what must hold before a version is published, one line a check; exit 1 if one fails.

The wheel is built from the sdist, installed into a bare virtual environment outside of this checkout, and used there.
"""

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
NAME = "lockstep-train"
"""The distribution's name: `lockstep` on the index is another project's."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SDIST_ONLY = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "README.zh.md", "SECURITY.md")


class Failed(Exception):
    """A check does not hold; the message says why."""


@dataclass(frozen=True)
class Built:
    """What is uploaded."""

    wheel: Path
    sdist: Path

    def __str__(self) -> str:
        return f"{self.sdist.name}, and from it {self.wheel.name}"


def versions() -> dict[str, str]:
    """The version as each file states it."""
    places = {
        "src/lockstep/version.py": r'^__version__ = "(.+)"$',
        "CHANGELOG.md": r"^## (\S+)",
        "CITATION.cff": r"^version: (\S+)$",
    }
    found = {name: re.search(pattern, (ROOT / name).read_text(), re.MULTILINE) for name, pattern in places.items()}
    return {name: match[1] if match else "none" for name, match in found.items()}


def check_version() -> str:
    """One version everywhere."""
    found = versions()
    if len(set(found.values())) != 1:
        raise Failed(", ".join(f"{name} has {version}" for name, version in found.items()))
    return f"{next(iter(found.values()))} in {', '.join(found)}"


def check_name() -> str:
    """The name that is ours on the index."""
    if PROJECT["project"]["name"] != NAME:
        raise Failed(f"pyproject.toml names {PROJECT['project']['name']}, and only {NAME} is ours")
    return f"{NAME}; the command and the import are lockstep"


def package_files() -> set[str]:
    """Every file that the wheel must have: code, pages, templates, and the examples."""
    package, examples = ROOT / "src" / "lockstep", ROOT / "examples"
    own = {path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()}
    shown = {Path("lockstep", path.relative_to(ROOT)) for path in examples.rglob("*") if path.is_file()}
    return {path.as_posix() for path in own | shown if path.suffix != ".pyc"}


def build(folder: Path) -> Built:
    """Build the sdist, and the wheel from it."""
    _run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    stem = f"{NAME.replace('-', '_')}-{versions()['src/lockstep/version.py']}"
    return Built(folder / f"{stem}-py3-none-any.whl", folder / f"{stem}.tar.gz")


def check_wheel(built: Built) -> str:
    """All files of the package, and nothing else."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    return _compared(built.wheel, names, package_files())


def check_sdist(built: Built) -> str:
    """What a wheel is built from, and the pages that belong to it."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    examples = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.*") if path.suffix != ".pyc"}
    wanted = examples | set(SDIST_ONLY)
    return _compared(built.sdist, names & wanted, wanted)


def _compared(archive: Path, names: set[str], wanted: set[str]) -> str:
    if missing := sorted(wanted - names):
        raise Failed(f"{archive.name} lacks {len(missing)} files, such as {missing[0]}")
    if extra := sorted(names - wanted):
        raise Failed(f"{archive.name} has {len(extra)} files that are not the package's, such as {extra[0]}")
    return f"{archive.name}: {len(names)} files, {archive.stat().st_size / 1e6:.1f} MB"


def check_metadata(built: Built) -> str:
    """What the index shows: twine reads the description as the index does."""
    _run([sys.executable, "-m", "twine", "check", "--strict", str(built.wheel), str(built.sdist)])
    return "twine finds nothing wrong"


def install(built: Built, folder: Path, borrow: bool) -> Path:
    """Install the wheel into a new environment; returns its `lockstep`. borrow: take this environment's packages."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *(("--no-deps",) if borrow else ("-c", str(ROOT / "constraints.txt"))), str(built.wheel)])
    if borrow:
        # A line of a .pth file is a folder to search; what that folder installs in editable mode is not taken over.
        place = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        (place / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "lockstep"


def uses(program: Path, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """What a user does with Snake and with an environment of their own, in a folder outside of any checkout."""

    def use(*words: str) -> Callable[[], str]:
        return lambda: (_run([str(program), *words], folder).strip().splitlines() or [""])[-1]

    yield "new", use("new", "maze")
    yield "examples", use("examples", "maze", "--into", ".")
    for target, run in (("snake", "a"), ("./maze/maze.py", "b")):
        short = ("--preset", "debug", "--max-updates", "2", "--run-name", run, "--device", "cpu", "--ranks", "2")
        yield f"train {target}", use("train", target, *short)
        yield f"resume {run}", use("resume", run, "--max-updates", "3")
        yield f"eval {run}", use("eval", run, "--episodes", "2")
        yield f"play {run}", use("play", run, "--video", f"{run}.gif", "--episodes", "1", "--max-frames", "20")
        yield f"report {run}", use("report", run, "--no-film")
        yield f"verify {run}", use("verify", run)
        yield f"verify {target}", use("verify", target, "--ranks", "1,2", "--updates", "2", "--device", "cpu")
    yield "watch", lambda: watched(program, folder)


def watched(program: Path, folder: Path) -> str:
    """Start the live page, fetch it and its script, and stop it."""
    with _started([str(program), "watch"], folder) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            raise Failed(f"watch printed no address: {line.strip()}")
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            page = answer.read().decode()
    if "app.js" not in page:
        raise Failed("the live page does not name its script")
    return f"a page of {len(page):,} characters"


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, cwd=folder, env=_bare(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _bare() -> dict[str, str]:
    """The environment variables of a user: with a checkout on PYTHONPATH pip installs nothing, and that is tested."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(command: list[str], folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, env=_bare(), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "nothing printed").splitlines()[-1]
        raise Failed(f"{' '.join(command[:4])} ...: exit {done.returncode}: {last}")
    return done.stdout


class Checklist:
    """Prints a line for each check, and remembers whether all of them hold."""

    def __init__(self) -> None:
        self.good = True

    def hold(self, title: str, check: Callable[[], T]) -> T | None:
        """Check one thing and print its line; returns what the check returned, None if it failed."""
        try:
            result = check()
        except Failed as problem:
            self.good = False
            print(f"FAILED {title:24} {problem}", flush=True)
            return None
        print(f"ok     {title:24} {result}", flush=True)
        return result


def main() -> int:
    """Check everything; what needs a wheel is left out if none could be built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--borrow", action="store_true", help="use the packages of this environment")
    borrow, checks = parser.parse_args().borrow, Checklist()
    checks.hold("version", check_version)
    checks.hold("name", check_name)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if (built := checks.hold("build", lambda: build(folder / "dist"))) is None:
            return 1
        for title, check in (("wheel", check_wheel), ("sdist", check_sdist), ("metadata", check_metadata)):
            checks.hold(title, partial(check, built))
        if (program := checks.hold("install", lambda: install(built, folder / "venv", borrow))) is None:
            return 1
        work = folder / "work"
        work.mkdir()
        for title, use in uses(program, work):
            checks.hold(title, use)
    print("ready to be published" if checks.good else "not ready: see the lines that FAILED")
    return 0 if checks.good else 1


if __name__ == "__main__":
    sys.exit(main())
