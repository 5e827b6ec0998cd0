"""`lockstep predict`: what a trained model expects of something that is in progress, such as a match that is on."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.config.fields import Range, Seed
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import show, tell
from lockstep.workloads import registry
from lockstep.workloads.capabilities import ForecastRequest, ForecastsProgress

if TYPE_CHECKING:
    from lockstep.workloads.capabilities import Forecast, Forecaster

USAGE = (
    "lockstep predict RUN MATCH.json | FOLDER | ZIP | - [--simulate N] [--follow] [--per-ball FILE] [--json]\n\n"
    "cricket: a match in progress as Cricsheet writes it; - reads one from the standard input. Prints the next ball's "
    "probabilities and what moved them; with --simulate also the final score and who wins, by playing the match out."
)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ModelOptions):
    """What is predicted."""

    simulate: Annotated[int, Range(at_least=0, at_most=1_000_000)] = 0
    """Times to play the match out to its end; 0 = the next ball alone."""
    seed: Seed = 2025
    """Seed of these games."""
    striker: str = ""
    """Who faces the next ball, where the file cannot tell; none = by the laws of the game and the usual order."""
    nonstriker: str = ""
    """Who is at the other end; none = as for the striker."""
    bowler: str = ""
    """Who bowls the next ball; none = as for the striker."""
    per_ball: str = ""
    """File to write the prediction of every past ball to: .csv, .json or .parquet."""
    follow: bool = False
    """Read the file again whenever it changes, until the match is over or Ctrl-C."""
    interval: Annotated[float, Range(at_least=0.01, at_most=3600)] = 2.0
    """With --follow: seconds between looks at the file."""
    json: bool = False
    """Print one JSON object for each match instead of text."""


def predict(arguments: list[str]) -> int:
    """The verb `predict`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(USAGE, PredictOptions))
    options, others = command.take(rest, PredictOptions())
    if len(others) != 1 or others[0].startswith("--"):
        said = f", not {shown(' '.join(others))}" if others else ""
        raise UserError(f"predict: needs one match file, folder or zip after the run, or -{said}; --help explains")
    source = others[0]
    subject = models.find(text, options, [])
    registry.require(subject.workload, ForecastsProgress)
    subject.check_policy(TRAINED)
    if options.follow and not Path(source).is_file():
        raise UserError(f"--follow {shown(source)}: can follow one file only; give the path of a match file")
    trained = models.load(subject, options.device)
    forecaster = registry.require(subject.workload, ForecastsProgress).forecaster(
        subject.config, trained.learner, trained.world
    )
    if options.per_ball:
        show(f"{options.per_ball}: {forecaster.write_steps(source, Path(options.per_ball)):,} balls")
        return 0
    given = {name: getattr(options, name) for name in ("striker", "nonstriker", "bowler")}
    request = ForecastRequest(options.simulate, options.seed, {name: who for name, who in given.items() if who})
    if options.follow:
        _follow(forecaster, source, request, options)
        return 0
    for number, forecast in enumerate(forecaster.forecasts(source, request)):
        _show(forecast, options.json, first=number == 0)
    return 0


def _show(forecast: "Forecast", as_json: bool, *, first: bool) -> None:
    if as_json:
        print(json.dumps(forecast.summary()), flush=True)
    else:
        show(("" if first else "\n") + forecast.table())


def _follow(forecaster: "Forecaster", source: str, request: ForecastRequest, options: PredictOptions) -> None:
    """Forecast again whenever the file has changed, until nothing is left to forecast."""
    seen, shown_any = None, False
    while True:
        # Looked at before reading: a change during the reading is noticed the next time.
        now = _version(Path(source))
        if now != seen:
            seen = now
            try:
                for forecast in forecaster.forecasts(source, request):
                    _show(forecast, options.json, first=not shown_any)
                    shown_any = True
                    if forecast.over:
                        return
            except UserError as error:
                # The file may be read in the middle of being written; it is read again when it changes.
                tell(f"lockstep: {error}; waiting for the file to change", sys.stderr)
        time.sleep(options.interval)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
