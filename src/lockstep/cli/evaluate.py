"""`lockstep eval`: plays whole episodes with a trained model or a baseline, and reports."""

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions, Subject
from lockstep.config.fields import Alias, Range, Seed, nearest
from lockstep.errors import UserError
from lockstep.output import columns, is_terminal, show, suggest, tell
from lockstep.reporting.text_table import aligned_lines
from lockstep.storage.disk import write_atomically
from lockstep.workloads import registry
from lockstep.workloads.capabilities import Compares, Comparison, EvaluatesBaselines, Predicts
from lockstep.workloads.contests import Contestant, Contests

if TYPE_CHECKING:
    from lockstep.cli.model import TrainedModel
    from lockstep.reporting.evaluation import Evaluation

USAGE = (
    "lockstep eval RUN | FILE [--episodes N] [--seed S] [--output results.json] [--policy NAME] [--json]\n"
    "       lockstep eval WORKLOAD --policy NAME [--preset NAME] [--config FILE] [--FIELD VALUE]...\n"
    "       lockstep eval WORKLOAD --team RUN | NAME --against RUN | NAME, or eval RUN --against RUN | NAME\n"
    "       lockstep eval RUN [--data PATH | --part validation | test | train] where a workload learns from data\n\n"
    "RUN is a name in runs/ or a path; its final weights are used, else its best, else its newest checkpoint.\n"
    "runs/x/best, runs/x/checkpoints/step-... and files of weights can be named too. Results of a run's model go to\n"
    "its evaluation.json unless --output says otherwise."
)
LARGEST_BATCH = 4096
"""Episodes played in parallel; more are played in batches of this size, so that memory stays bounded."""
_NUMBERS = ("mean", "deviation", "min", "max", "median")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """What is played."""

    episodes: Annotated[int, Range(at_least=1, at_most=10_000_000), Alias("n_episodes"), Alias("episode")] = 100
    """Whole episodes to play; a workload that predicts from data is measured on all of it."""
    seed: Seed = 2025
    """Seed of the episodes."""
    policy: str = TRAINED
    """Who plays: trained (the network's most probable action) or a baseline of the workload, e.g. scripted, random."""
    team: str = ""
    """For workloads with teams: a run, a file or a baseline that plays; none = the model that is evaluated."""
    against: str = ""
    """For workloads with teams: the opponent, a run, a file or a baseline; each side is played in half of the games."""
    data: str = ""
    """For workloads that learn from data: data to measure on instead of the run's own, such as newer days (trading)."""
    chains: str = ""
    """For trading: files of recorded option quotes, to trade instead of the model's prices."""
    bad_files: Literal["refuse", "skip"] | None = None
    """What to do with an unreadable file of --data: refuse (stop), or skip (with a warning); none = as in the run."""
    part: Literal["validation", "test", "train"] = "validation"
    """For workloads that predict from data: which part of the run's own data to measure on."""
    report: bool = True
    """Also compare with baselines and draw charts beside the JSON file, if the workload supports it."""
    output: str = ""
    """JSON file to write the results to."""
    json: bool = False
    """Print the results as JSON instead of a table."""
    quiet: bool = False
    """Print only warnings, errors and the results."""


def evaluate(arguments: list[str]) -> int:
    """The verb `eval`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(USAGE, EvaluateOptions))
    options, fields = command.take(rest, EvaluateOptions())
    subject = models.find(text, options, fields, options.data, options.bad_files, chains=options.chains)
    command.check_writable("output", options.output)
    if options.team or options.against:
        return _contest(subject, options)
    subject.check_policy(options.policy)
    _check_part(subject, options)
    if (options.data or options.chains) and not options.quiet:
        models.tell_about_data(subject)
    if is_terminal(sys.stderr) and not options.quiet:
        # At once, for whoever waits there: importing PyTorch alone takes seconds.
        tell(f"evaluating {subject.workload.name} ...", sys.stderr)
    results, report = measure(subject, options)
    target = _target(subject, options)
    lines = _told(results, report)
    if report and options.report and target:
        lines.append(_write_charts(report, target.parent))
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        show("\n\n".join(lines))
    if target:
        _store(results, target, asked_for=bool(options.output))
    if options.policy == TRAINED and not options.json and not options.quiet:
        named = shlex.quote(str(subject.path))
        suggest(f"lockstep play {named}", f"lockstep export {named}")
    return 0


def measure(subject: Subject, options: EvaluateOptions) -> tuple[dict[str, Any], Comparison | None]:
    """The content of evaluation.json, and the workload's own report if it has one."""
    policy = options.policy
    about: dict[str, Any] = {"workload": subject.workload.name, "policy": policy}
    model = models.load(subject, options.device) if policy == TRAINED else None
    if model is not None:
        about |= {"model": str(subject.path), "step": model.step}
    if isinstance(subject.workload, Predicts):
        return _predictions(about, subject, model, options)
    results = about | _play(subject, model, options).summary()
    trained_on = model.trained_on if model else None
    results |= subject.workload.more_results(subject.config, results, trained_on)
    if model is None or not options.report or not isinstance(subject.workload, Compares):
        return results, None
    # A comparison plays at most one batch of episodes.
    episodes = min(options.episodes, LARGEST_BATCH)
    report = subject.workload.report(subject.config, model.learner, model.world, episodes, options.seed)
    return results | {"comparison": report.summary()}, report


def _told(results: dict[str, Any], report: Comparison | None) -> list[str]:
    """The results as text, paragraph by paragraph; predictions have no episodes, so the report stands alone."""
    if report and "episodes" not in results:
        return [_heading(results) + report.table()]
    return [table(results), *([report.table()] if report else [])]


def _predictions(
    about: dict[str, Any], subject: Subject, model: "TrainedModel | None", options: EvaluateOptions
) -> tuple[dict[str, Any], Comparison]:
    world = model.world if model else models.place_of(subject, options.device)
    assess, learner = registry.require(subject.workload, Predicts).assess, model.learner if model else None
    report = assess(subject.config, options.policy, learner, subject.data, options.part, world, subject.bad_files)
    return about | report.summary(), report


def _play(subject: Subject, model: "TrainedModel | None", options: EvaluateOptions) -> "Evaluation":
    """Play whole episodes with the trained model, or with a baseline if `model` is None."""
    batches = _batches(options.episodes, options.seed)
    if model is not None:
        play_trained = subject.workload.judge(subject.config, model.learner, model.world)
        return _joined([play_trained(count, first) for count, first in batches])
    play = registry.require(subject.workload, EvaluatesBaselines).evaluate_baseline
    world = models.place_of(subject, options.device)
    return _joined([play(options.policy, subject.config, world, count, first) for count, first in batches])


def _write_charts(report: Comparison, folder: Path) -> str:
    """Draw the charts; returns a line that names them, or says why they were not written."""
    try:
        return f"charts: {', '.join(map(str, report.write(folder)))}"
    except (UserError, OSError) as error:
        reason = f"{error.strerror}; --output FILE puts them elsewhere" if isinstance(error, OSError) else str(error)
        return f"no charts written ({reason})"


def _check_part(subject: Subject, options: EvaluateOptions) -> None:
    if options.part == "validation":
        return
    if not isinstance(subject.workload, Predicts):
        raise UserError(f"--part {options.part}: {subject.workload.name} plays episodes and has no data; leave it out")
    if subject.data:
        raise UserError(f"--part {options.part}: selects from the run's own data; leave out either --part or --data")


def _contest(subject: Subject, options: EvaluateOptions) -> int:
    """Let two contestants play against each other, and report."""
    play = registry.require(subject.workload, Contests).contest
    if not options.against:
        raise UserError(f"--team {options.team}: the opponent is missing; add --against with a run or a baseline")
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
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        show(result.table())
    if options.output:
        _store(results, Path(options.output), asked_for=True)
    return 0


def _contestant(flag: str, text: str, subject: Subject, options: EvaluateOptions) -> Contestant:
    """The contestant that a flag names: a baseline of the workload, or a trained model."""
    baselines = subject.workload.baselines
    if text in baselines:
        return _baseline(text, subject)
    try:
        # --preset belongs to the subject of this command; the opponent's stored model has its own configuration.
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
    """The results as text: a heading and a line for each quantity."""
    names = [name.removesuffix("_mean") for name in results if name.endswith("_mean")]
    names = [name for name in names if name != f"{results['workload']}_task"]  # a task's index; its mean says nothing
    lines = [f"{_heading(results)}{results['episodes']:,} episodes, seed {results['seed']}", ""]
    rows = [[name.replace("_", " "), *(_cell(results[f"{name}_{number}"]) for number in _NUMBERS)] for name in names]
    aligned = [True, *(False for _ in _NUMBERS)]
    heads = ["std dev" if number == "deviation" else number for number in _NUMBERS]
    lines += aligned_lines(["", *heads], rows, aligned, [0], columns(sys.stdout))
    return "\n".join([*lines, *_task_lines(results)])


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _heading(results: dict[str, Any]) -> str:
    """Workload, policy and model, ending in a colon."""
    heading = f"{results['workload']}, {results['policy']}"
    if results.get("step") is not None:
        heading += f" for {results['step']:,} steps ({results['model']})"
    if "on" in results:
        heading += f", on {results['on']}"
    return f"{heading}: "


def _task_lines(results: dict[str, Any]) -> list[str]:
    """A line for each task, if the workload reports several, and the score over all of them."""
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
    """(episodes, seed) of each batch; a larger evaluation begins with the same episodes as a smaller one."""
    from lockstep.compute.random import derive_seed

    starts = range(0, episodes, LARGEST_BATCH)
    seeds = [derive_seed(seed, f"episodes from {start}") if start else seed for start in starts]
    return [(min(LARGEST_BATCH, episodes - start), first) for start, first in zip(starts, seeds, strict=True)]


def _joined(played: "list[Evaluation]") -> "Evaluation":
    """Concatenate the batches."""
    from lockstep.reporting.evaluation import Evaluation

    return Evaluation(
        returns=[value for part in played for value in part.returns],
        lengths=[value for part in played for value in part.lengths],
        seed=played[0].seed,
        extra={name: [value for part in played for value in part.extra[name]] for name in played[0].extra},
    )


def _target(subject: Subject, options: EvaluateOptions) -> Path | None:
    """Where the results go: to --output, else into the run of the evaluated model."""
    if options.output:
        return Path(options.output)
    return subject.run.path / "evaluation.json" if subject.run and options.policy == TRAINED else None


def _store(results: dict[str, Any], path: Path, asked_for: bool) -> None:
    try:
        write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
    except OSError as error:
        if asked_for:
            raise UserError(f"--output {path}: not written ({error.strerror})") from error
        # A read-only run can still be evaluated; only an explicit --output that fails is an error.
        print(f"{path.name} not written ({error.strerror}); --output FILE puts it elsewhere", file=sys.stderr)
