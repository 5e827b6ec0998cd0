"""`lockstep compare`: what differs between two runs, or between two groups of them."""

import json
from dataclasses import dataclass
from pathlib import Path

from lockstep.cli import argv as command
from lockstep.cli.report import take_runs
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.reports import comparison_text
from lockstep.reports.comparison import Group, compare
from lockstep.reports.recorded_run import find_runs

USAGE = (
    "lockstep compare A B [--json] [--runs-dir DIR]\n"
    "       lockstep compare A1,A2,A3 B1,B2,B3\n\n"
    "What differs between two runs: settings, machine, evaluation, curves at equal steps, and whether their weights\n"
    "have the same bits. With several runs a side, separated by commas, intervals are over runs: give seeds."
)
MOST_RUNS = 100


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Where runs are, and the output's format."""

    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""
    json: bool = False
    """Print JSON, with every metric."""


def compare_runs(arguments: list[str]) -> int:
    """The verb `compare`."""
    command.offer_help(arguments, lambda _: command.help_text(USAGE, CompareOptions))
    options, sides = take_runs(arguments, CompareOptions())
    if len(sides) != 2:
        raise UserError(f"compare: {len(sides)} sides given; allowed: two, each a run or runs separated by commas")
    found = compare(*(_group(side, Path(options.runs_dir)) for side in sides))
    print(json.dumps(found.to_json()) if options.json else "\n".join(comparison_text.lines(found)))
    return 0


def _group(text: str, runs_dir: Path) -> Group:
    names = [name for name in text.split(",") if name]
    if not 1 <= len(names) <= MOST_RUNS:
        raise UserError(f"{shown(text)}: names {len(names)} runs; allowed: 1 to {MOST_RUNS} a side")
    # Sizes only: a hash of every file would take minutes for large runs, and `verify` and `report` do it.
    return Group(tuple(find_runs(names, runs_dir, verify=False)))
