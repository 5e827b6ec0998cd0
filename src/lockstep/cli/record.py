"""`lockstep record`: episodes of a model, or of another program's files, as files to learn from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions, Subject
from lockstep.config.fields import Range, Seed
from lockstep.errors import UserError

USAGE = (
    "lockstep record RUN | FILE --output DIR [--episodes N] [--seed S] [--stochastic]\n"
    "       lockstep record WORKLOAD --policy NAME --output DIR [--preset NAME] [--config FILE] [--FIELD VALUE]...\n"
    "       lockstep record WORKLOAD --source DIR --output DIR [--FIELD VALUE]...\n\n"
    "Plays whole episodes and writes them as safetensors files, from which a run can learn without acting\n"
    "(control: data_dir). Files that are there already stay, new ones come beside them. With --source, the chunks of\n"
    "the public mt30 or mt80 data (.pt) are written in this form: lockstep record control task=mt30 --source chunks\n"
    "--output episodes. Nothing in them is run."
)


@dataclass(frozen=True, kw_only=True)
class RecordOptions(ModelOptions):
    """What is written."""

    output: str = ""
    """Directory to write to; it is made where there is none."""
    episodes: Annotated[int, Range(at_least=1, at_most=10_000_000)] = 100
    """Whole episodes to play."""
    seed: Seed = 2025
    """Where the episodes' random numbers start from; the same episodes as those of `lockstep eval` with this seed."""
    policy: str = TRAINED
    """Who plays: trained (the model) or a baseline of the workload, as random."""
    stochastic: bool = False
    """Play with the noise of training instead of as well as possible."""
    source: str = ""
    """Directory or file of another program to take the episodes from instead of playing."""


def record(words: list[str]) -> int:
    """The verb `record`."""
    text, rest = command.take_subject(words, "run", lambda _: command.help_text(USAGE, RecordOptions))
    options, fields = command.take(rest, RecordOptions())
    subject = models.find(text, options, fields)
    subject.workload.offer("convert_episodes" if options.source else "record_episodes")
    if not options.output:
        raise UserError("--output is missing: name a directory to write the episodes to")
    folder = Path(options.output)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: is a file; name a directory to write the episodes to")
    count, steps = _convert(subject, options, folder) if options.source else _play(subject, options, folder)
    print(f"{folder}: {count:,} episodes, {steps:,} steps")
    return 0


def _convert(subject: Subject, options: RecordOptions, folder: Path) -> tuple[int, int]:
    return subject.workload.offer("convert_episodes")(subject.config, Path(options.source), folder)


def _play(subject: Subject, options: RecordOptions, folder: Path) -> tuple[int, int]:
    subject.check_policy(options.policy)
    act: Any = options.policy
    if options.policy == TRAINED:
        act = models.load(subject, options.device).learner.acting(options.seed, explore=options.stochastic)  # type: ignore[attr-defined]
    return subject.workload.offer("record_episodes")(subject.config, act, options.episodes, options.seed, folder)
