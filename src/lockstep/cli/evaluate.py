"""`lockstep eval`: whole episodes with a trained model, or with a policy to compare it with."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions, Subject
from lockstep.config.fields import Range, Seed, nearest
from lockstep.config.run_config import RunConfig
from lockstep.errors import UserError
from lockstep.storage.disk import write_atomically

if TYPE_CHECKING:
    from lockstep.cli.model import TrainedModel
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.run.learner import Learner

USAGE = (
    "lockstep eval RUN | FILE [--episodes N] [--seed S] [--output results.json] [--policy NAME] [--json]\n"
    "       lockstep eval WORKLOAD --policy NAME [--preset NAME] [--config FILE] [--FIELD VALUE]...\n"
    "       lockstep eval WORKLOAD --team RUN | NAME --against RUN | NAME, or eval RUN --against RUN | NAME\n"
    "       lockstep eval RUN [--data PATH | --part validation | test | train] where a workload predicts from data\n\n"
    "RUN is a name in runs/ or a path; its final weights are used, else its best, else its newest checkpoint.\n"
    "runs/x/best, runs/x/checkpoints/step-... and files of weights can be named too. Results of a run's model go to\n"
    "its evaluation.json unless --output says otherwise."
)
LARGEST_BATCH = 4096
"""Episodes played side by side; more are played one batch after another."""
_NUMBERS = ("mean", "deviation", "min", "max", "median")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """What is played."""

    episodes: Annotated[int, Range(at_least=1, at_most=10_000_000)] = 100
    """Whole episodes to play; a workload that predicts is measured on all that there is."""
    seed: Seed = 2025
    """Where the episodes' random numbers start from."""
    policy: str = TRAINED
    """Who plays: trained (the network's most probable action) or a baseline of the workload, as scripted or random."""
    team: str = ""
    """Where teams meet: who plays, a run, a file or a baseline of the workload; none = the model that is evaluated."""
    against: str = ""
    """Where teams meet: who they play against, a run, a file or a baseline; half of the games from each side."""
    data: str = ""
    """Where a workload predicts: other data to measure on than the run's own."""
    bad_files: Literal["refuse", "skip"] | None = None
    """What to do with a file of that data which cannot be read: end, or leave it out and say so; none = as the run."""
    part: Literal["validation", "test", "train"] = "validation"
    """Where a workload predicts: which part of the run's own data to measure on."""
    report: bool = True
    """Also compare with others and draw charts beside the JSON file, where the workload does that."""
    output: str = ""
    """JSON file to write the results to."""
    json: bool = False
    """Print the results as JSON instead of a table."""


class Report(Protocol):
    """What a workload has to say of a model in its own way."""

    def summary(self) -> dict[str, Any]:
        """For evaluation.json."""

    def table(self) -> str:
        """For people."""

    def write(self, folder: Path) -> list[Path]:
        """Draw charts into a folder; returns their paths."""


def evaluate(words: list[str]) -> int:
    """The verb `eval`."""
    text, rest = command.take_subject(words, "run", lambda _: command.help_text(USAGE, EvaluateOptions))
    options, fields = command.take(rest, EvaluateOptions())
    subject = models.find(text, options, fields, options.data, options.bad_files)
    _check_writable(options.output)
    if options.team or options.against:
        return _contest(subject, options)
    subject.check_policy(options.policy)
    _check_part(subject, options)
    results, report = measure(subject, options)
    target = _target(subject, options)
    lines = _told(results, report)
    if report and options.report and target:
        lines.append(_write_charts(report, target.parent))
    print(json.dumps(results, indent=1) if options.json else "\n\n".join(lines))
    if target:
        _store(results, target, asked_for=bool(options.output))
    return 0


def measure(subject: Subject, options: EvaluateOptions) -> tuple[dict[str, Any], Report | None]:
    """The content of evaluation.json, and the workload's own report where it has one."""
    policy = options.policy
    about: dict[str, Any] = {"workload": subject.workload.name, "policy": policy}
    model = models.load(subject, options.device) if policy == TRAINED else None
    if model is not None:
        about |= {"model": str(subject.path), "step": model.step}
    if subject.workload.predicts:
        return _predictions(about, subject, model, options)
    results = about | _play(subject, model, options).summary()
    more = getattr(subject.workload.module, "more_results", None)
    results |= more(subject.config, results) if more else {}
    if model is None or not options.report or not hasattr(subject.workload.module, "report"):
        return results, None
    # A comparison plays at most one batch of episodes.
    episodes = min(options.episodes, LARGEST_BATCH)
    report = subject.workload.offer("report")(subject.config, model.learner, model.world, episodes, options.seed)
    return results | {"comparison": report.summary()}, report


def _told(results: dict[str, Any], report: Report | None) -> list[str]:
    """The results for people, paragraph by paragraph; of predictions the report is all that there is."""
    if report and "episodes" not in results:
        return [_heading(results) + report.table()]
    return [table(results), *([report.table()] if report else [])]


def _predictions(
    about: dict[str, Any], subject: Subject, model: "TrainedModel | None", options: EvaluateOptions
) -> tuple[dict[str, Any], Report]:
    world = model.world if model else models.place_of(subject, options.device)
    assess, learner = subject.workload.offer("assess"), model.learner if model else None
    report = assess(subject.config, options.policy, learner, subject.data, options.part, world, subject.bad_files)
    return about | report.summary(), report


def _play(subject: Subject, model: "TrainedModel | None", options: EvaluateOptions) -> "Evaluation":
    """Whole episodes with the trained model, or with a baseline where there is none."""
    batches = _batches(options.episodes, options.seed)
    if model is not None:
        play_trained = _player(subject, model)
        return _joined([play_trained(count, first) for count, first in batches])
    play, world = subject.workload.offer("evaluate_baseline"), models.place_of(subject, options.device)
    return _joined([play(options.policy, subject.config, world, count, first) for count, first in batches])


def _write_charts(report: Report, folder: Path) -> str:
    """A line about what was drawn, or why it was not."""
    try:
        return f"charts: {', '.join(map(str, report.write(folder)))}"
    except (UserError, OSError) as error:
        reason = f"{error.strerror}; --output FILE puts them elsewhere" if isinstance(error, OSError) else str(error)
        return f"no charts written ({reason})"


def _check_part(subject: Subject, options: EvaluateOptions) -> None:
    if options.part == "validation":
        return
    if not subject.workload.predicts:
        raise UserError(f"--part {options.part}: {subject.workload.name} plays episodes; leave it out")
    if subject.data:
        raise UserError(f"--part {options.part}: is a part of the run's own data; leave it or --data out")


def _player(subject: Subject, model: "TrainedModel") -> Callable[[int, int], "Evaluation"]:
    """Plays so many episodes of a seed: as in training, or as a workload says that finished models are judged."""
    judged = getattr(subject.workload.module, "evaluate_trained", None)
    return partial(judged, subject.config, model.learner, model.world) if judged else model.learner.evaluate


@dataclass(frozen=True)
class Contestant:
    """Somebody who plays a team: a trained model, or a baseline of the workload by its name."""

    name: str
    config: RunConfig
    learner: "Learner | None" = None


def _contest(subject: Subject, options: EvaluateOptions) -> int:
    """Let two contestants play against each other, and report."""
    play = subject.workload.offer("contest")
    if not options.against:
        raise UserError(f"--team {options.team}: against whom is missing; add --against with a run or a baseline")
    if options.team:
        team = _contestant("team", options.team, subject, options)
    else:
        subject.check_policy(options.policy)
        team = (
            _trained(str(subject.path), subject, options)
            if options.policy == TRAINED
            else _baseline(options.policy, subject)
        )
    rival = _contestant("against", options.against, subject, options)
    place = models.place_of(subject, options.device)
    result = play(subject.config, team, rival, options.episodes, options.seed, place)
    results = {"workload": subject.workload.name, "seed": options.seed, **result.summary()}
    print(json.dumps(results, indent=1) if options.json else result.table())
    if options.output:
        _store(results, Path(options.output), asked_for=True)
    return 0


def _contestant(flag: str, text: str, subject: Subject, options: EvaluateOptions) -> Contestant:
    """Whom a flag names."""
    baselines = getattr(subject.workload.module, "BASELINES", ())
    if text in baselines:
        return _baseline(text, subject)
    try:
        found = models.find(text, replace(options, preset=type(options).preset), [])
        found.check_policy(TRAINED)
    except UserError as error:
        near = nearest(text, list(baselines))
        hint = f"the nearest baseline is {near}" if near else f"baselines are {', '.join(baselines)}"
        raise UserError(f"--{flag} {text}: {error}; {hint}") from error
    if found.workload.name != subject.workload.name:
        raise UserError(f"--{flag} {text}: is a run of {found.workload.name}, not of {subject.workload.name}")
    return _trained(text, found, options)


def _baseline(name: str, subject: Subject) -> Contestant:
    return Contestant(name, subject.config)


def _trained(name: str, subject: Subject, options: EvaluateOptions) -> Contestant:
    return Contestant(name, subject.config, models.load(subject, options.device).learner)


def table(results: dict[str, Any]) -> str:
    """The results for people: a heading and a line for each quantity."""
    names = [name.removesuffix("_mean") for name in results if name.endswith("_mean")]
    names = [name for name in names if name != f"{results['workload']}_task"]  # a number that only tells tasks apart
    lines = [f"{_heading(results)}{results['episodes']:,} episodes, seed {results['seed']}", ""]
    width = max(map(len, names))
    lines.append(" " * width + "".join(f"{number:>12}" for number in _NUMBERS))
    for name in names:
        lines.append(
            f"{name.replace('_', ' '):{width}}"
            + "".join(f"{results[f'{name}_{number}']:12,.2f}" for number in _NUMBERS)
        )
    return "\n".join([*lines, *_task_lines(results)])


def _heading(results: dict[str, Any]) -> str:
    """Who it was, with a colon."""
    what = f"{results['workload']}, {results['policy']}"
    if results.get("step") is not None:
        what += f" for {results['step']:,} steps ({results['model']})"
    if "on" in results:
        what += f", on {results['on']}"
    return f"{what}: "


def _task_lines(results: dict[str, Any]) -> list[str]:
    """A line for each task, where a workload reports on several, and the score over all of them."""
    tasks: dict[str, dict[str, float]] = results.get("tasks", {})
    if not tasks:
        return []
    columns = list(next(iter(tasks.values())))
    width = max(map(len, tasks))
    lines = ["", " " * width + "".join(f"{name:>12}" for name in columns)]
    for task, row in tasks.items():
        numbers = (f"{row[name]:12,.0f}" if name == "episodes" else f"{row[name]:12,.2f}" for name in columns)
        lines.append(f"{task:{width}}" + "".join(numbers))
    if "normalised_score" in results:
        lines.append(f"normalised score {results['normalised_score']:.2f}")
    return lines


def _batches(episodes: int, seed: int) -> list[tuple[int, int]]:
    """Episodes and seed of each batch; a larger evaluation begins with the episodes of a smaller one."""
    from lockstep.compute.random import derive_seed

    starts = range(0, episodes, LARGEST_BATCH)
    seeds = [derive_seed(seed, f"episodes from {start}") if start else seed for start in starts]
    return [(min(LARGEST_BATCH, episodes - start), first) for start, first in zip(starts, seeds, strict=True)]


def _joined(played: "list[Evaluation]") -> "Evaluation":
    """All batches as one."""
    from lockstep.reporting.evaluation import Evaluation

    return Evaluation(
        returns=[value for part in played for value in part.returns],
        lengths=[value for part in played for value in part.lengths],
        seed=played[0].seed,
        extra={name: [value for part in played for value in part.extra[name]] for name in played[0].extra},
    )


def _check_writable(output: str) -> None:
    """Refuse what cannot be written before playing for minutes."""
    path = Path(output)
    if output and (path.is_dir() or not path.parent.is_dir()):
        problem = "is a directory" if path.is_dir() else f"the directory {path.parent} is not there"
        raise UserError(f"--output {output}: {problem}; give the path of a file to write")


def _target(subject: Subject, options: EvaluateOptions) -> Path | None:
    """Where the results go: to the file that was asked for, else to the run whose model it is."""
    if options.output:
        return Path(options.output)
    return subject.run.path / "evaluation.json" if subject.run and options.policy == TRAINED else None


def _store(results: dict[str, Any], path: Path, asked_for: bool) -> None:
    try:
        write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
    except OSError as error:
        if asked_for:
            raise UserError(f"--output {path}: not written ({error.strerror})") from error
        # A run that only may be read can still be evaluated.
        print(f"{path.name} not written ({error.strerror}); --output FILE puts it elsewhere", file=sys.stderr)
