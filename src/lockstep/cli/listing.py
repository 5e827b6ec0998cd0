"""`lockstep list`, `lockstep runs` and `lockstep cache`: workloads, runs on disk, and what is kept for later."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lockstep.cli import argv as command
from lockstep.storage import run_directory, user_cache
from lockstep.workloads import registry
from lockstep.workloads.workload import Workload


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Output format."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, kw_only=True)
class RunsOptions(ListOptions):
    """Where to look."""

    runs_dir: str = "runs"
    """Folder that holds the runs."""


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
    if options.json:
        print(json.dumps([_described(workload) for workload in workloads]))
        return 0
    for workload in workloads:
        print(f"{workload.name}: {workload.summary}")
        print(f"  learned by {', '.join(workload.algorithms)}")
        for name, preset in workload.presets.items():
            print(f"  {name:24} {preset.summary}")
    return 0


def _described(workload: Workload) -> dict[str, Any]:
    networks = {name: list(workload.networks_for(name)) for name in workload.algorithms}
    return {"name": workload.name, "summary": workload.summary, "presets": list(workload.presets), "networks": networks}


def list_runs(arguments: list[str]) -> int:
    """The verb `runs`."""
    command.offer_help(arguments, lambda _: command.help_text("lockstep runs [--runs-dir DIR] [--json]", RunsOptions))
    options = command.take_all(arguments, RunsOptions())
    rows = run_directory.list_runs(Path(options.runs_dir))
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    if not rows:
        print(f"no runs in {options.runs_dir}; start one with: lockstep train snake --preset small")
        return 0
    width = max(4, *(len(row.name) for row in rows))
    print(f"{'name':{width}}  {'workload':10} {'state':10} {'steps':>14} {'best':>9}  last change")
    for row in rows:
        best = f"{row.best_score:.2f}" if row.best_score is not None else "-"
        when = f"{datetime.fromtimestamp(row.updated):%Y-%m-%d %H:%M}"
        print(f"{row.name:{width}}  {row.workload:10} {row.state:10} {row.step:>14,} {best:>9}  {when}")
    return 0


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
        print(user_cache.described(entry))
    total, done = sum(entry.size for entry in entries) / 1e6, "removed from" if options.clear else "in"
    limit = "" if options.cache_dir else f" (limit {user_cache.LIMIT / 1e6:,.0f} MB)"
    print(f"{total:,.1f} MB {done} {folder}{limit}")
    return 0
