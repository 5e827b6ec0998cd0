"""The table of `lockstep runs`. Nothing here needs torch."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from lockstep.config.values import shown
from lockstep.reporting.text_table import aligned_lines
from lockstep.storage.run_summary import RunSummary

SortKey = Literal["updated", "name", "workload", "preset", "state", "ranks", "steps", "done", "time", "best"]
_HEAD = ("name", "state", "steps", "done", "time", "best")
_TO_LEFT = (True, True, False, False, False, True)
# The name alone: it may be long.
_MAY_SHRINK = (0,)
_INDENT = "    "
_DIRECTIONS = "max: higher is better; min: lower is better"
# Texts from A to Z; numbers, the best and the latest first. What is not known comes last.
_KEYS: Mapping[SortKey, Callable[[RunSummary], Any]] = {
    "updated": lambda run: -run.updated,
    "name": lambda run: run.name,
    "workload": lambda run: (not run.workload, run.workload),
    "preset": lambda run: (not run.preset, run.preset),
    "state": lambda run: run.state,
    "ranks": lambda run: -run.ranks,
    "steps": lambda run: -run.step,
    "done": lambda run: -(run.progress or 0.0),
    "time": lambda run: -run.seconds,
    "best": lambda run: (run.best_score is None, -(run.best_score or 0.0)),
}


def in_order(runs: Sequence[RunSummary], key: SortKey) -> list[RunSummary]:
    """Sort runs by a column; runs that are alike in it stay in their order."""
    return sorted(runs, key=_KEYS[key])


def table_lines(runs: Sequence[RunSummary], width: int | None) -> list[str]:
    """A line for each run, and below it what is trained, with the settings that differ from the preset's.

    width: None = no limit.
    """
    head, *lines = aligned_lines(_HEAD, [_cells(run) for run in runs], _TO_LEFT, _MAY_SHRINK, width)
    found = [head]
    for run, line in zip(runs, lines, strict=True):
        found += [line, *_about(run, width)]
    return [*found, _DIRECTIONS] if any(run.score_name for run in runs) else found


def _cells(run: RunSummary) -> list[str]:
    return [
        run.name,
        run.state,
        compact(run.step),
        "-" if run.progress is None else f"{run.progress:.0%}",
        str(timedelta(seconds=round(run.seconds))) if run.seconds else "-",
        _best(run),
    ]


def _best(run: RunSummary) -> str:
    if run.best is None:
        return "-"
    direction = f"{'min' if run.lower_is_better else 'max'} " if run.score_name else ""
    return f"{direction}{run.score_name.removesuffix('_mean')} {run.best:.4g}".strip()


def _about(run: RunSummary, width: int | None) -> list[str]:
    ranks = f"on {run.ranks} rank{'s' if run.ranks > 1 else ''}" if run.ranks else ""
    what = " ".join(filter(None, (run.workload, run.preset, ranks)))
    # As a user would give them.
    settings = " ".join(f"{name}={shown(value)}" for name, value in run.changed.items())
    text = ": ".join(filter(None, (what, settings)))
    if width is None:
        return [_INDENT + text] if text else []
    return textwrap.wrap(
        text, max(width, 20), initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def compact(number: int) -> str:
    """A number of steps in at most six characters: 950, 12.3k, 1.23M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # What would round to a thousand of the smaller unit is one of this.
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{letter}" if number < 999.5 * size else f"{number / size:.0f}{letter}"
    return str(number)
