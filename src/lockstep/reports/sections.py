"""The parts of a report, each from what is recorded of one or several runs."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median, pstdev

from lockstep.config.run_settings import FREE_TO_CHANGE
from lockstep.reports import agreement, charts_of_runs, curves, intervals, markup, reproduction
from lockstep.reports.chart import Chart, draw
from lockstep.reports.comparison import episodes, facts, means
from lockstep.reports.intervals import Estimate
from lockstep.reports.number_text import duration, short
from lockstep.reports.recorded_run import RecordedRun, StoredWeights
from lockstep.reports.svg import svg

Runs = Sequence[RecordedRun]
# Over all ranks; the parts of each rank are logged as well.
_SPLIT = re.compile(r"time/split_((?:(?!_rank\d)\w)+)")
_MOST_ROWS = 200
# For tables without columns of numbers.
_TEXTS = 10**6
_MOST_PARTS = 7
_OTHER = "other"
_LEGIBLE = 0.06
"""The share from which a piece of a bar has room for its number."""


@dataclass(frozen=True)
class Film:
    """A film of a run's policy, or why there is none."""

    run: str
    gif: bytes
    caption: str


def overview(runs: Runs) -> str:
    """A line for each run: what it is, how far it came, how good it became."""
    head = ["run", "workload", "preset", "state", "ranks", "steps", "duration", "best"]
    rows = [
        [
            run.name,
            run.summary.workload,
            run.summary.preset or "-",
            run.summary.state,
            run.ranks or "-",
            f"{run.summary.step:,}",
            duration(run.summary.seconds or run.duration),
            _best(run),
        ]
        for run in runs
    ]
    notes = [markup.paragraph(f"{run.name}: {problem}", "bad") for run in runs for problem in run.problems]
    return markup.table(head, rows, numbers_from=4) + "".join(notes)


def _best(run: RecordedRun) -> str:
    name, best = run.summary.score_name.removesuffix("_mean"), run.summary.best
    return "-" if best is None else f"{short(best)} {name}".strip()


def evaluation(runs: Runs) -> str:
    """The last evaluation of each run, with 95% intervals over its episodes."""
    parts = []
    for run in runs:
        if names := list(means(run))[:_MOST_ROWS]:
            rows = [[name.removesuffix("_mean").replace("_", " "), *_spread(run, name)] for name in names]
            # A model that predicts is measured on all data at once: there is nothing that numbers could spread over.
            over_episodes = any(episodes(run, name) for name in names)
            head = ["mean", "95% interval", "deviation", "min", "median", "max"] if over_episodes else ["value"]
            parts.append(markup.table([run.name, *head], [row[: len(head) + 1] for row in rows]))
            parts.append(markup.paragraph(_about(run), "note"))
    return "".join(parts) or markup.paragraph("No evaluation is recorded; `lockstep eval RUN` makes one.", "note")


def _spread(run: RecordedRun, name: str) -> list[str]:
    values = episodes(run, name)
    if not values:
        return [short(means(run)[name]), *("-" for _ in range(5))]
    estimate = intervals.mean_of(values)
    assert estimate is not None
    spread = (pstdev(values), min(values), median(values), max(values))
    return [short(estimate.mean), interval(estimate), *map(short, spread)]


def interval(estimate: Estimate) -> str:
    """An interval as text; a dash if there is none."""
    low, high = estimate.low, estimate.high
    return "-" if low is None or high is None else f"{short(low)} to {short(high)}"


def _about(run: RecordedRun) -> str:
    found = run.evaluation
    seed = f", seed {found['seed']}" if "seed" in found else ""
    if "episodes" in found:
        return f"{found['episodes']} episodes{seed}; the interval is Student's t over episodes, of this model alone."
    return f"{found.get('samples', '?')} samples{seed}."


def charts(chosen: Sequence[Chart]) -> str:
    """Charts in as many columns as there is room for."""
    pictures = "".join(f"<figure>{svg(draw(chart), f'{chart.title} by steps')}</figure>" for chart in chosen)
    return f'<div class="charts">{pictures}</div>' if pictures else ""


def training(runs: Runs) -> str:
    """The curves, the less important ones folded."""
    shown = charts_of_runs.first_charts(runs)
    first = charts(shown)
    others = charts_of_runs.other_charts(runs)
    more = markup.folded(f"{len(others)} more metrics", charts(others)) if others else ""
    notes = []
    if any(curves.smoothed(run.seconds) for run in runs):
        notes.append("Thin: every log point. Bold: the running mean over 4% of them.")
    if any(chart.overlaps for chart in shown):
        notes.append("Dashed: exactly on another curve.")
    note = " ".join(notes) if first else "No log points."
    return first + (markup.paragraph(note, "note") if note else "") + more


def films(found: Sequence[Film]) -> str:
    """The policy at play."""
    parts = []
    for film in found:
        caption = f"<figcaption>{markup.text(film.run)}: {markup.text(film.caption)}</figcaption>"
        data = base64.b64encode(film.gif).decode()
        picture = f'<img alt="{markup.text(film.run)} playing" src="data:image/gif;base64,{data}">' if data else ""
        parts.append(f"<figure>{picture}{caption}</figure>")
    return f'<div class="films">{"".join(parts)}</div>' if parts else ""


def speed(runs: Runs) -> str:
    """Steps per second, and what the time went into."""
    rows = [
        [run.name, run.ranks or "-", short(curves.mean_over_steps(run.curves.get(charts_of_runs.FPS)))] for run in runs
    ]
    parts = _parts(runs)
    bars = "".join(_bar(run, parts) for run in runs)
    key = "".join(f'<span class="k{_hue(parts, part)}">{markup.text(part)}</span>' for part in (*parts, _OTHER))
    split = f'<h3>Time split</h3>{bars}<p class="key">{key}</p>' if bars else ""
    table = markup.table(["run", "ranks", "mean steps/s"], rows)
    return table + charts(charts_of_runs.speed_charts(runs)) + split


def _parts(runs: Runs) -> list[str]:
    found = [match[1] for tag in charts_of_runs.tags(runs) if (match := _SPLIT.fullmatch(tag))]
    return found[:_MOST_PARTS]


def _hue(parts: Sequence[str], part: str) -> int:
    return parts.index(part) if part in parts else _MOST_PARTS


def _bar(run: RecordedRun, parts: Sequence[str]) -> str:
    """The shares of the wall time as a bar; the rest (logging, evaluating, saving) is `other`."""
    means_of = {part: curves.mean_over_steps(run.curves.get(f"time/split_{part}")) for part in parts}
    shares = {part: min(max(mean, 0.0), 1.0) for part, mean in means_of.items() if mean is not None}
    if not shares:
        return ""
    shares[_OTHER] = max(1.0 - sum(shares.values()), 0.0)
    cells = "".join(
        f'<span class="k{_hue(parts, part)}" style="flex-grow:{share:.4f}" title="{markup.text(part)} {share:.0%}">'
        f"{f'{share:.0%}' if share >= _LEGIBLE else ''}</span>"
        for part, share in shares.items()
    )
    return f'<div class="split"><b>{markup.text(run.name)}</b><div class="bar">{cells}</div></div>'


def promises(runs: Runs) -> str:
    """Whether runs hold the same weights at equal steps, and whether the stored files are what was written."""
    pairs = agreement.pairs(runs)
    lines = [markup.paragraph(f"{_mark(pair)} {pair}", "good" if pair.same else "") for pair in pairs]
    for run in runs:
        damaged = [stored for stored in run.stored if stored.problems]
        lines += [markup.paragraph(f"✗ {run.name}/{bad.name}: {bad.problems[0]}", "bad") for bad in damaged]
        checked = "every file has the sha256 of its manifest" if run.verified else "every file has its size; not hashed"
        if run.stored and not damaged:
            lines.append(markup.paragraph(f"✓ {run.name}: {len(run.stored)} stored models, {checked}", "good"))
    rows = [[run.name, *_stored_row(stored)] for run in runs for stored in run.stored][:_MOST_ROWS]
    head = ["run", "stored", "step", "ranks", "sha256 of the weights", "state"]
    return "".join(lines) + (
        markup.folded(f"{len(rows)} stored models", markup.table(head, rows, _TEXTS)) if rows else ""
    )


def _mark(pair: agreement.Agreement) -> str:
    # Nothing was promised of runs of other experiments, or of `fast`: a difference is no failure.
    return "✓" if pair.same else "✗" if pair.promised else "≠"


def _stored_row(stored: StoredWeights) -> list[object]:
    state = "damaged" if stored.problems else "intact"
    return [stored.name, f"{stored.step:,}", stored.ranks or "-", stored.sha256[:16] or "-", state]


def happenings(runs: Runs) -> str:
    """Starts, restarts, stops and warnings; checkpoints are counted only."""
    parts = []
    for run in runs:
        told = [event for event in run.events if event.kind != "checkpoint"]
        rows = [
            [_when(event.time), event.kind, "-" if event.step is None else f"{event.step:,}", event.text]
            for event in told[-_MOST_ROWS:]
        ]
        restarts = sum(event.kind == "restart" for event in told)
        skipped = run.curves.get("train/skipped_updates")
        line = f"{run.name}: {restarts} restart{'' if restarts == 1 else 's'} after a rank died"
        line += f", {sum(skipped.values):.0f} updates skipped for values that were not finite" if skipped else ""
        parts.append(markup.paragraph(line + "."))
        if rows:
            parts.append(markup.table(["time (UTC)", "what", "step", "detail"], rows, _TEXTS))
    return "".join(parts)


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def settings(runs: Runs) -> str:
    """What differs from the preset and between the runs; all settings folded."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    changed = {name for run in runs for name in run.summary.changed}
    differing = {name for name in names if len({run.settings.get(name) for run in runs}) > 1}
    chosen = [name for name in names if name in (changed | differing) and name not in FREE_TO_CHANGE]
    presets = ", ".join(dict.fromkeys(run.summary.preset for run in runs if run.summary.preset))
    title = f"Differ from the preset {presets}" if presets else "The preset is not recorded"
    title += ", or between the runs." if len(runs) > 1 else "."
    head = ["setting", *(run.name for run in runs)]
    few = markup.table(head, _setting_rows(runs, chosen), _TEXTS) if chosen else markup.paragraph("None.")
    every = markup.folded(f"All {len(names)} settings", markup.table(head, _setting_rows(runs, list(names)), _TEXTS))
    return markup.paragraph(title, "note") + few + every


def _setting_rows(runs: Runs, names: Sequence[str]) -> list[list[str]]:
    return [[name, *(run.settings.get(name, "-") or "''" for run in runs)] for name in names]


def machine(runs: Runs) -> str:
    """Versions and devices."""
    found: list[Mapping[str, str]] = [facts(run) for run in runs]
    names = dict.fromkeys(name for side in found for name in side)
    rows = [[name, *(side.get(name, "-") for side in found)] for name in names]
    return markup.table(["", *(run.name for run in runs)], rows, _TEXTS) if any(run.system for run in runs) else ""


def commands(runs: Runs) -> str:
    """How to make each run again, and how to check it."""
    return "".join(f"<h3>{markup.text(run.name)}</h3>{markup.code(reproduction.commands(run))}" for run in runs)
