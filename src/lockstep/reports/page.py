"""A report as one HTML file: no scripts, nothing fetched, light and dark as the reader's system is set."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files

from lockstep.reports import markup, sections
from lockstep.reports.recorded_run import RecordedRun
from lockstep.reports.sections import Film
from lockstep.version import __version__

# Nothing may be loaded or run, whatever text of a run's files might slip through as markup.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(runs: Sequence[RecordedRun], films: Sequence[Film]) -> str:
    """The whole report."""
    names = ", ".join(run.name for run in runs)
    parts = [
        sections.overview(runs),
        markup.section("Training", sections.training(runs)),
        markup.section("Evaluation", sections.evaluation(runs)),
        markup.section("At play", sections.films(films)),
        markup.section("Speed", sections.speed(runs)),
        markup.section("Promises that were checked", sections.promises(runs)),
        markup.section("What happened", sections.happenings(runs)),
        markup.section("Settings", sections.settings(runs)),
        markup.section("Machine", sections.machine(runs)),
        markup.section("Make it again", sections.commands(runs)),
    ]
    style = files("lockstep.reports").joinpath("style.css").read_text(encoding="utf-8")
    made = f"Made by Lockstep {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC from what the runs recorded."
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{markup.text(names)}: Lockstep report</title><style>{style}</style></head>"
        f"<body><main><h1>{markup.text(names)}</h1>{''.join(parts)}"
        f"<footer>{markup.text(made)}</footer></main></body></html>\n"
    )
