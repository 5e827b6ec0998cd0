"""`lockstep list`, `lockstep runs` and `lockstep cache`: workloads, runs on disk, and what is kept for later."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.cli import argv as command
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import columns, is_terminal, show, suggest
from lockstep.reporting.runs_table import SortKey, in_order, table_lines
from lockstep.storage import user_cache
from lockstep.storage.run_summary import RunSummary, list_runs
from lockstep.workloads import registry
from lockstep.workloads.workload import Workload

_RUNS = "runs"
_SECONDS_BETWEEN_LOOKS = 2.0
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Output format."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, kw_only=True)
class RunsOptions(ListOptions):
    """Where to look, and what to show first."""

    runs_dir: str = _RUNS
    """Folder that holds the runs."""
    sort: SortKey = "updated"
    """Column to sort by: texts from A to Z, numbers with the largest or best first."""
    watch: bool = False
    """Show it again every two seconds, until Ctrl-C."""


@dataclass(frozen=True, kw_only=True)
class CacheOptions(ListOptions):
    """Which cache, and whether to empty it."""

    cache_dir: str = ""
    """Folder of the cache; none = the user's, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep."""
    clear: bool = False
    """Remove everything in it: it is made again when needed."""


def list_workloads(arguments: list[str]) -> int:
    """The verb `list`."""
    command.offer_help(arguments, lambda _: command.help_text("lockstep list [--json]", ListOptions))
    options = command.take_all(arguments, ListOptions())
    workloads = [registry.load(name) for name in registry.names()]
    # Named only: a package that cannot be imported must not spoil the list.
    others = {name: f"{point.value}, of an installed package" for name, point in registry.installed().items()}
    if options.json:
        named = [{"name": name, "summary": summary, "presets": [], "networks": {}} for name, summary in others.items()]
        print(json.dumps([*(_described(workload) for workload in workloads), *named]))
        return 0
    for workload in workloads:
        show(f"{workload.name}: {workload.summary}")
        show(f"  learned by {', '.join(workload.algorithms)}")
        for name, preset in workload.presets.items():
            show(f"  {name:24}  {preset.summary}")
    for name, summary in others.items():
        show(f"{name}: {summary}")
    suggest("lockstep train snake --preset small", "lockstep examples")
    return 0


def _described(workload: Workload) -> dict[str, Any]:
    networks = {name: list(workload.networks_for(name)) for name in workload.algorithms}
    return {"name": workload.name, "summary": workload.summary, "presets": list(workload.presets), "networks": networks}


def show_runs(arguments: list[str]) -> int:
    """The verb `runs`."""
    usage = "lockstep runs [--sort COLUMN] [--watch] [--runs-dir DIR] [--json]"
    command.offer_help(arguments, lambda _: command.help_text(usage, RunsOptions))
    options = command.take_all(arguments, RunsOptions())
    folder = Path(options.runs_dir)
    # Before the first run there is no folder `runs`; any other was named by the user.
    if options.runs_dir != _RUNS and not folder.is_dir():
        raise UserError(f"--runs-dir {shown(options.runs_dir)}: no such folder; give the one that holds the runs")
    while True:
        _print_runs(in_order(list_runs(folder), options.sort), options)
        if not options.watch:
            break
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if not options.json:
        suggest("lockstep watch")
    return 0


def _print_runs(runs: list[RunSummary], options: RunsOptions) -> None:
    if options.json:
        print(json.dumps([run.content() for run in runs]), flush=True)
        return
    screen = _CLEAR_SCREEN if options.watch and is_terminal(sys.stdout) else ""
    lines = table_lines(runs, columns(sys.stdout))
    if not runs:
        lines = [f"no runs in {options.runs_dir}; start one with: lockstep train snake --preset small"]
    print(screen + "\n".join(lines), flush=True)


def show_cache(arguments: list[str]) -> int:
    """The verb `cache`."""
    usage = "lockstep cache [--clear] [--cache-dir DIR] [--json]"
    command.offer_help(arguments, lambda _: command.help_text(usage, CacheOptions))
    options = command.take_all(arguments, CacheOptions())
    folder = Path(options.cache_dir) if options.cache_dir else user_cache.user_cache()
    entries = user_cache.entries(folder)
    if options.clear:
        for entry in entries:
            user_cache.remove(entry)
    if options.json:
        rows = [{"name": entry.path.name, "bytes": entry.size, "used": entry.used} for entry in entries]
        print(json.dumps({"folder": str(folder), "cleared": options.clear, "entries": rows}))
        return 0
    for entry in entries:
        show(user_cache.described(entry))
    total, done = sum(entry.size for entry in entries) / 1e6, "removed from" if options.clear else "in"
    limit = "" if options.cache_dir else f" (limit {user_cache.LIMIT / 1e6:,.0f} MB)"
    show(f"{total:,.1f} MB {done} {folder}{limit}")
    return 0
