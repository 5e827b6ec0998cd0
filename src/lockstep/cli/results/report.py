"""`lockstep report` and `lockstep compare`: what runs recorded, as one HTML file, and what differs between them."""

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.cli import argv as command
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import counted, show, suggest
from lockstep.reports import charts_of_runs, comparison_text
from lockstep.reports.chart import draw
from lockstep.reports.comparison import Group, compare
from lockstep.reports.page import page
from lockstep.reports.png import write_png
from lockstep.reports.recorded_run import RecordedRun, find_runs
from lockstep.reports.sections import Film
from lockstep.storage.disk import write_atomically
from lockstep.untrusted import read_regular

REPORT_USAGE = (
    "lockstep report RUN... [--out FILE.html] [--png DIR] [--no-film] [--no-verify] [--runs-dir DIR]\n\n"
    "One page with settings, curves, evaluation, a film, speed, checks and the commands to make the run again.\n"
    "It has no scripts and fetches nothing. Several runs are laid over each other."
)
COMPARE_USAGE = (
    "lockstep compare A B [--json] [--runs-dir DIR]\n"
    "       lockstep compare A1,A2,A3 B1,B2,B3\n\n"
    "What differs between two runs: settings, machine, evaluation, curves at equal steps, and whether their weights\n"
    "have the same bits. With several runs a side, separated by commas, intervals are over runs: give seeds."
)
MOST_RUNS = 30
"""Runs of a report, or of one side of a comparison."""
MOST_FILMS = 4
_FRAMES = 250
# Seconds; a planning policy on a CPU can take minutes for the games from which a typical one is chosen.
_LONGEST_FILMING = 300
_LARGEST_FILM = 16 << 20


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What is written, and where."""

    out: str = "report.html"
    """HTML file to write."""
    png: str = ""
    """Folder to write every chart to as well, as a PNG file each; none = no such files."""
    film: bool = True
    """Film a typical game of each model, of the first four runs (`lockstep play --video`)."""
    verify: bool = True
    """Hash every file of every checkpoint; otherwise only their sizes are compared."""
    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Where runs are, and the output's format."""

    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""
    json: bool = False
    """Print JSON, with every metric."""


def report(arguments: list[str]) -> int:
    """The verb `report`."""
    command.offer_help(arguments, lambda _: command.help_text(REPORT_USAGE, ReportOptions))
    options, names = command.take_words(arguments, ReportOptions())
    if not names or len(names) > MOST_RUNS:
        raise UserError(f"report: {len(names)} runs named; allowed: 1 to {MOST_RUNS}; `lockstep runs` lists them")
    target = _target(options.out)
    _check_folder(options.png)
    try:
        runs = find_runs(names, Path(options.runs_dir), verify=options.verify)
    except UserError as error:
        raise UserError(f"{error}{command.after_switches(arguments, options, names)}") from error
    films = [_film(run) for run in runs[:MOST_FILMS]] if options.film else []
    # Text of a stranger may hold characters that UTF-8 has no bytes for.
    content = page(runs, films).encode(errors="replace")
    try:
        write_atomically(target, content)
        pictures = _write_charts(runs, Path(options.png)) if options.png else 0
    except OSError as error:
        raise UserError(f"{error.filename or target}: not written ({error.strerror})") from error
    show(f"{target}: {len(runs)} run{'s' if len(runs) > 1 else ''}, {len(content) / 1e6:.1f} MB")
    if options.png:
        show(f"{options.png}: {pictures} charts")
    if len(names) == 2:
        suggest(shlex.join(["lockstep", "compare", *names, *_place(options.runs_dir)]))
    return 0


def compare_runs(arguments: list[str]) -> int:
    """The verb `compare`."""
    command.offer_help(arguments, lambda _: command.help_text(COMPARE_USAGE, CompareOptions))
    options, sides = command.take_words(arguments, CompareOptions())
    if len(sides) != 2:
        raise UserError(
            f"compare: {counted(len(sides), 'side')} given; allowed: two, each a run or runs separated by commas"
        )
    found = compare(*(_group(side, Path(options.runs_dir)) for side in sides))
    if options.json:
        print(json.dumps(found.to_json()))
    else:
        show("\n".join(comparison_text.lines(found)))
        # A report names each run once, also one that was compared with itself.
        names = dict.fromkeys(name for side in sides for name in side.split(",") if name)
        suggest(shlex.join(["lockstep", "report", *names, *_place(options.runs_dir)]))
    return 0


def _place(runs_dir: str) -> list[str]:
    """The flag that a suggested command needs to find the same runs."""
    return ["--runs-dir", runs_dir] if runs_dir != CompareOptions().runs_dir else []


def _group(text: str, runs_dir: Path) -> Group:
    names = [name for name in text.split(",") if name]
    if not 1 <= len(names) <= MOST_RUNS:
        raise UserError(f"{shown(text)}: names {len(names)} runs; allowed: 1 to {MOST_RUNS} a side")
    # Sizes only: a hash of every file would take minutes for large runs, and `verify` and `report` do it.
    return Group(tuple(find_runs(names, runs_dir, verify=False)))


def _target(out: str) -> Path:
    """The file to write; UserError now rather than after minutes of filming if that is not possible."""
    path = Path(out)
    # Another kind of file with this name would be lost.
    other = "" if path.suffix in (".html", ".htm") else "is not the name of an HTML file"
    problem = command.why_unwritable(path) or other
    if problem:
        raise UserError(f"--out {shown(out)}: {problem}; give the path of a .html file to write")
    return path


def _check_folder(png: str) -> None:
    """UserError now rather than after minutes of filming if the charts cannot go where --png says."""
    path = Path(png)
    if png and not path.is_dir() and (problem := "is a file" if path.exists() else command.why_unwritable(path)):
        raise UserError(f"--png {shown(png)}: {problem}; give a folder, which is made if only its last part is missing")


def _film(run: RecordedRun) -> Film:
    """A film of the run's model, or a sentence on why there is none."""
    # In a process of its own: reading runs needs no torch, and a renderer that crashes costs no more than the film.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.gif"
        words = ["play", str(run.path.resolve()), "--video", str(path), "--max-frames", str(_FRAMES)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "lockstep", *words],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LONGEST_FILMING,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Film(run.name, b"", f"no film: it took longer than {_LONGEST_FILMING} s")
        if done.returncode or not path.is_file():
            reason = (done.stderr.strip().splitlines() or ["play wrote nothing"])[-1]
            return Film(run.name, b"", f"no film: {reason.removeprefix('lockstep: ')}")
        if path.stat().st_size > _LARGEST_FILM:
            return Film(run.name, b"", f"no film: larger than {_LARGEST_FILM >> 20} MB; see `lockstep play --video`")
        # The line names the file, which is gone, and then says what it shows.
        told = done.stdout.strip().splitlines()[-1].partition(": ")[2]
        return Film(run.name, read_regular(path, _LARGEST_FILM), told)


def _write_charts(runs: Sequence[RecordedRun], folder: Path) -> int:
    """Write every chart as a picture; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = (charts_of_runs.first_charts, charts_of_runs.speed_charts, charts_of_runs.other_charts)
    charts = [chart for part in parts for chart in part(runs)]
    for chart in charts:
        write_png(draw(chart), folder / f"{chart.title.replace('/', '-').replace(':', '-')}.png")
    return len(charts)
