"""Which charts a report has: the curves that people look at first, then all others."""

import re
from collections.abc import Sequence

from lockstep.reports.chart import COLOURS, Chart, Series
from lockstep.reports.recorded_run import RecordedRun

FPS = "time/global_fps"
_FIRST = (
    re.compile(r"rollout/return_mean"),
    re.compile(r"eval/(return_mean|log_loss|accuracy|[a-z_]*score[a-z_]*)"),
    re.compile(r"train/.*loss.*"),
)
_SPEED = re.compile(rf"{FPS}|time/fps_rank\d+")
# Shares of the time are drawn as bars, and own seconds are for finding slow ranks.
_ELSEWHERE = re.compile(r"time/split_.*|time/own_seconds.*|rollout/episodes")
_MOST = 80
"""Charts of one report: a log may have hundreds of metrics."""


def is_first(tag: str) -> bool:
    """Whether a metric is one of those that people look at first."""
    return any(pattern.fullmatch(tag) for pattern in _FIRST)


def first_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """The curves that say how the training went."""
    return [_chart(tag, runs) for pattern in _FIRST for tag in tags(runs) if pattern.fullmatch(tag)]


def speed_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Steps per second over all ranks; of each rank only if a single run has several."""
    found = [tag for tag in tags(runs) if _SPEED.fullmatch(tag)]
    several = len(found) > 2 and len(runs) == 1
    return [_chart(tag, runs) for tag in found if several or tag == FPS]


def other_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """All other curves."""
    patterns = (*_FIRST, _SPEED, _ELSEWHERE)
    others = [tag for tag in tags(runs) if not any(pattern.fullmatch(tag) for pattern in patterns)]
    return [_chart(tag, runs) for tag in others[:_MOST]]


def tags(runs: Sequence[RecordedRun]) -> list[str]:
    """Every metric of any run, in the order of the logs."""
    return list(dict.fromkeys(tag for run in runs for tag in run.curves))


def _chart(tag: str, runs: Sequence[RecordedRun]) -> Chart:
    # A run keeps its colour in all charts, also where others lack the metric.
    series = [Series(run.name, run.curves[tag], place % COLOURS) for place, run in enumerate(runs) if tag in run.curves]
    return Chart(tag, tuple(series), legend=len(runs) > 1)
