"""A comparison as plain text, at most 80 columns wide."""

import textwrap
from collections.abc import Iterator, Sequence

from lockstep.reporting.text_table import aligned_lines
from lockstep.reports.charts_of_runs import FPS, is_first
from lockstep.reports.comparison import Comparison, Contrast, CurveContrast
from lockstep.reports.intervals import Estimate
from lockstep.reports.number_text import short

WIDTH = 80
_LONGEST_VALUE = 28
_NUMBERS = {"last": "last tenth", "best": "best", "mean": "mean"}


def lines(comparison: Comparison) -> list[str]:
    """The whole comparison, paragraph by paragraph."""
    found = [*_wrapped(f"A: {comparison.a.label}"), *_wrapped(f"B: {comparison.b.label}"), ""]
    found += _differences("settings", comparison.settings)
    found += _differences("machine", comparison.system)
    found += _results(comparison)
    # The others are in the JSON.
    found += _curves([curve for curve in comparison.curves if is_first(curve.tag) or curve.tag == FPS])
    found += ["weights", *(line for pair in comparison.weights for line in _wrapped(str(pair), 2)), ""]
    return [*found, *_wrapped(_reading(comparison))]


def _wrapped(text: str, indent: int = 0) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(text, WIDTH, initial_indent=blank, subsequent_indent=f"{blank}   ") or [blank]


def _differences(what: str, values: dict[str, tuple[str, str]]) -> list[str]:
    if not values:
        return [f"{what}: the same", ""]
    rows = [[f"  {name}", *map(_shown, pair)] for name, pair in values.items()]
    return [*aligned_lines([what, "A", "B"], rows, (True, True, True), (1, 2), WIDTH), ""]


def _shown(value: str) -> str:
    """A value of a file, on one line and without control characters, which a terminal would obey."""
    clean = value if value.isprintable() else repr(value)
    return clean if len(clean) <= _LONGEST_VALUE else f"{clean[: _LONGEST_VALUE - 1]}…"


def _results(comparison: Comparison) -> list[str]:
    if not comparison.results:
        return ["last evaluation: none that both have", ""]
    rows = [[f"  {name}", *_cells(contrast)] for name, contrast in comparison.results.items()]
    return [*_table("last evaluation", rows), ""]


def _curves(curves: Sequence[CurveContrast]) -> Iterator[str]:
    """A table for each stretch of steps that curves have in common."""
    if not curves:
        yield from ("curves: no metric with two steps in common", "")
    stretches = dict.fromkeys((curve.first_step, curve.last_step) for curve in curves)
    for first, last in stretches:
        rows: list[list[str]] = []
        for curve in (curve for curve in curves if (curve.first_step, curve.last_step) == (first, last)):
            rows.append([f"  {curve.tag}", "", "", "", ""])
            rows += [[f"    {text}", *_cells(getattr(curve, name))] for name, text in _NUMBERS.items()]
        yield from _table(f"steps {first:,} to {last:,}", rows)
        yield ""


def _table(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    head, to_left = [title, "A", "B", "B - A", "95%"], [True, False, False, False, True]
    # One run a side: its curves have no interval.
    if all(row[-1] in ("", "-") for row in rows):
        head, to_left, rows = head[:-1], to_left[:-1], [row[:-1] for row in rows]
    return aligned_lines(head, rows, to_left, (0,), WIDTH)


def _cells(contrast: Contrast) -> list[str]:
    difference = contrast.difference
    return [short(contrast.a.mean), short(contrast.b.mean), f"{_signed(difference.mean)}", _interval(difference)]


def _signed(value: float) -> str:
    return f"+{short(value)}" if value > 0 else short(value)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "-"
    if estimate.low == estimate.high == 0:
        return "equal in every episode"
    clear = "" if estimate.clear else "  (0 is inside)"
    return f"{_signed(estimate.low)} to {_signed(estimate.high)}{clear}"


def _reading(comparison: Comparison) -> str:
    """What the intervals are about, and what they are not."""
    if comparison.over == "runs":
        count = f"{len(comparison.a.runs)} and {len(comparison.b.runs)} runs"
        return f"Intervals: 95% of the difference of means over {count} (Welch's t); a side of one run has none."
    return (
        "Intervals: 95% of the difference of means over episodes (Welch's t). They are about these two models; "
        "whether the settings make the difference needs several seeds a side: "
        "lockstep compare A1,A2,A3 B1,B2,B3"
    )
