"""`lockstep record`: writes episodes, played or converted from another program's files, for offline training."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions, Subject
from lockstep.config.fields import Range, Seed
from lockstep.errors import UserError
from lockstep.output import show
from lockstep.workloads import registry
from lockstep.workloads.capabilities import Records

USAGE = (
    "lockstep record RUN | FILE --output DIR [--episodes N] [--seed S] [--stochastic]\n"
    "       lockstep record WORKLOAD --policy NAME --output DIR [--preset NAME] [--config FILE] [--FIELD VALUE]...\n"
    "       lockstep record WORKLOAD --source DIR --output DIR [--FIELD VALUE]...\n\n"
    "Plays whole episodes and writes them as safetensors files for offline training (control: data_dir). "
    "Existing files are kept; new ones are added beside them. With --source, chunks of the public mt30 or mt80 data "
    "(.pt) are converted to this format: lockstep record control task=mt30 --source chunks --output episodes. "
    "No code in those files is executed."
)


@dataclass(frozen=True, kw_only=True)
class RecordOptions(ModelOptions):
    """What is written."""

    output: str = ""
    """Directory to write to; created if it does not exist."""
    episodes: Annotated[int, Range(at_least=1, at_most=10_000_000)] = 100
    """Whole episodes to play."""
    seed: Seed = 2025
    """Seed of the episodes; they are the same as those of `lockstep eval` with this seed."""
    policy: str = TRAINED
    """Who plays: trained (the model) or a baseline of the workload, e.g. random."""
    stochastic: bool = False
    """Play with the exploration noise of training instead of greedily."""
    source: str = ""
    """Directory or file of another program to convert the episodes from, instead of playing."""


def record(arguments: list[str]) -> int:
    """The verb `record`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(USAGE, RecordOptions))
    options, fields = command.take(rest, RecordOptions())
    subject = models.find(text, options, fields)
    registry.require(subject.workload, Records)
    if not options.output:
        raise UserError("--output is missing: name a directory to write the episodes to")
    folder = Path(options.output)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: is a file; name a directory to write the episodes to")
    count, steps = _convert(subject, options, folder) if options.source else _play(subject, options, folder)
    show(f"{folder}: {count:,} episodes, {steps:,} steps")
    return 0


def _convert(subject: Subject, options: RecordOptions, folder: Path) -> tuple[int, int]:
    return registry.require(subject.workload, Records).convert_episodes(subject.config, Path(options.source), folder)


def _play(subject: Subject, options: RecordOptions, folder: Path) -> tuple[int, int]:
    subject.check_policy(options.policy)
    act: Any = options.policy
    if options.policy == TRAINED:
        player = models.load(subject, options.device).learner.player(options.seed)
        act = partial(player.act, explore=options.stochastic)
    recorder = registry.require(subject.workload, Records)
    return recorder.record_episodes(subject.config, act, options.episodes, options.seed, folder)
