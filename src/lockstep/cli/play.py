"""`lockstep play`: watch a model in the terminal, or film it."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from itertools import islice
from pathlib import Path
from statistics import fmean, median_high
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions, Subject
from lockstep.config.fields import OffOrCount, Range, Seed
from lockstep.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.reporting.film import Scene

USAGE = (
    "lockstep play RUN | FILE [--episodes N] [--seed S] [--fps 10] [--stochastic] [--policy NAME]\n"
    "                     [--video out.gif | out.mp4] [--max-frames N] [--only TASK]\n"
    "       lockstep play WORKLOAD --policy NAME [--preset NAME] [--config FILE] [--FIELD VALUE]...\n"
    "       lockstep play RUN --log game.json   or   lockstep play WORKLOAD --replay game.json\n\n"
    "In a terminal the board moves until Ctrl-C or the last episode; elsewhere the frames are printed. A video shows\n"
    "one typical game: of nine, with the seeds S to S+8, the one with the median return. With --episodes N it shows\n"
    "the first N games of seed S. Where a workload keeps a blotter (trading), that is printed instead.\n"
    "Where it predicts (cricket), matches of the data are followed, from number S on."
)
CANDIDATES = 9
"""Games out of which a video's is chosen."""
LONGEST_VIDEO = 1000
"""Frames of a video, unless --max-frames says otherwise."""
_WRITERS = {".gif": "write_gif", ".mp4": "write_mp4"}


@dataclass(frozen=True, kw_only=True)
class PlayOptions(ModelOptions):
    """What is shown."""

    episodes: OffOrCount = 0
    """Episodes to show; 0 = until Ctrl-C in a terminal, else one."""
    seed: Seed = 2025
    """Where the episodes' random numbers start from; the same episodes as those of `lockstep eval` with this seed."""
    fps: Annotated[float, Range(above=0, at_most=50)] = 10.0
    """Steps shown in a second."""
    stochastic: bool = False
    """Draw actions by their probabilities instead of taking the most probable one."""
    policy: str = TRAINED
    """Who plays: trained (the network) or a baseline of the workload, as scripted or random."""
    video: str = ""
    """File to write instead of showing it here: .gif, or .mp4 (needs the extra lockstep[video])."""
    log: str = ""
    """File to write the first game of the seed to, as JSON, instead of showing it; where the workload has such logs."""
    replay: str = ""
    """File that a game was written to, to be shown instead of a new one."""
    data: str = ""
    """Where a workload predicts: other data to follow than what the run was validated on."""
    only: str = ""
    """Where a run knows several tasks (control): the one to show; none = one after the other."""
    bad_files: Literal["refuse", "skip"] | None = None
    """What to do with a file of that data which cannot be read: end, or leave it out and say so; none = as the run."""
    max_frames: OffOrCount = 0
    """Frames after which to end; 0 = no limit, in a video 1,000."""


@dataclass
class _Show:
    """What was seen so far."""

    scores: list[float]
    frames: int = 0

    def watch(self, scenes: "Iterator[Scene]", episodes: int, frames: int) -> "Iterator[Scene]":
        """Pass on so many episodes and frames (0 = no limit) and take notes."""
        for scene in islice(scenes, frames or None):
            self.frames += 1
            yield scene
            if scene.ended:
                self.scores.append(scene.score)
                if len(self.scores) == episodes:
                    return

    def __str__(self) -> str:
        if not self.scores:
            return f"{self.frames} frames, no episode to its end"
        return f"{len(self.scores)} episode(s), {self.frames} frames, mean return {fmean(self.scores):.2f}"


def play(words: list[str]) -> int:
    """The verb `play`."""
    text, rest = command.take_subject(words, "run", lambda _: command.help_text(USAGE, PlayOptions))
    options, fields = command.take(rest, PlayOptions())
    subject = models.find(text, options, fields, options.data, options.bad_files)
    subject.workload.offer("read_log" if options.replay else "write_log" if options.log else "scenes")
    if options.only and "only" not in signature(subject.workload.offer("scenes")).parameters:
        raise UserError(f"--only {options.only}: {subject.workload.name} has one task")
    if options.log and options.video:
        raise UserError(f"--log {options.log} and --video {options.video}: give one of them, then the other")
    if not options.replay:
        subject.check_policy(options.policy)
    write = _film_writer(options.video) if options.video else None
    stage = _Stage(subject, options)
    if options.log:
        return _write_log(stage, options)
    if write:
        return _film(stage, options, write)
    if not options.replay and hasattr(subject.workload.module, "blotter"):
        return _tell(stage, options)
    return _animate(stage, options) if sys.stdout.isatty() else _print(stage, options)


class _Stage:
    """The player and the game: scenes for any seed."""

    def __init__(self, subject: Subject, options: PlayOptions) -> None:
        self._subject, self._options = subject, options
        plays = options.policy == TRAINED and not options.replay
        self._model = models.load(subject, options.device) if plays else None

    def scenes(self, seed: int) -> "Iterator[Scene]":
        """Game after game, or the one that is shown again."""
        if self._options.replay:
            return self._subject.workload.offer("read_log")(Path(self._options.replay))
        make = self._subject.workload.offer("scenes")
        # A workload asks whether anybody will look, where drawing costs something, and for the data it is to follow.
        known = {
            "pictures": bool(self._options.video),
            "only": self._options.only,
            "data": self._subject.data,
            "bad_files": self._subject.bad_files,
        }
        asked = {name: value for name, value in known.items() if name in signature(make).parameters}
        return make(self._subject.config, self._act(seed), seed, **asked)

    def blotter(self, seed: int) -> Iterator[tuple[list[str], float]]:
        """Episode after episode: its lines and its return."""
        return self._subject.workload.offer("blotter")(self._subject.config, self._act(seed), seed)

    def write_log(self, seed: int, path: Path) -> None:
        """Write the first game of a seed to a file."""
        self._subject.workload.offer("write_log")(self._subject.config, self._act(seed), seed, path)

    def typical(self, seed: int) -> int:
        """Out of a few seeds from this one on, that of the first game with the median return (of two, the better)."""
        if self._options.replay or self._subject.workload.predicts:
            return seed  # a match of the data, not one that is played anew
        if len(getattr(self._subject.config, "tasks", ())) > 1:
            return seed  # an evaluation plays all of its tasks, and says nothing about the one that is shown
        if self._model is None:
            world, baseline = models.place_of(self._subject, self._options.device), self._options.policy
            play = self._subject.workload.offer("evaluate_baseline")
            scores = [play(baseline, self._subject.config, world, 1, seed + i).score() for i in range(CANDIDATES)]
        elif self._options.stochastic:
            scores = [_score(self.scenes(seed + i)) for i in range(CANDIDATES)]
        else:
            scores = [self._model.learner.evaluate(1, seed + i).score() for i in range(CANDIDATES)]
        return seed + scores.index(median_high(scores))

    def _act(self, seed: int) -> Any:
        """What the workload's scenes ask for: a function of the observation, or a baseline's name."""
        if self._model is None:
            return self._options.policy
        if hasattr(self._model.learner, "acting"):
            return self._model.learner.acting(seed, explore=self._options.stochastic)
        from lockstep.cli.player import Player

        player, deterministic = Player(self._subject, self._model, seed), not self._options.stochastic

        def act(observation: "Tensor", begins: bool = False) -> "tuple[Tensor, Tensor]":
            """What the network does; `begins`: this is the first observation of an episode."""
            if begins:
                player.forget()
            return player.act(observation, deterministic)

        return act


def _score(scenes: "Iterator[Scene]") -> float:
    return next(scene.score for scene in scenes if scene.ended)


def _animate(stage: _Stage, options: PlayOptions) -> int:
    """Move the board in place until the last episode, or until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    show, code = _Show([]), 0
    try:
        with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as live:
            due = time.monotonic()
            for scene in show.watch(stage.scenes(options.seed), options.episodes, options.max_frames):
                live.update(Text.from_ansi(scene.text, no_wrap=True, overflow="crop"), refresh=True)
                due = max(due + 1 / options.fps, time.monotonic())
                time.sleep(max(due - time.monotonic(), 0))
    except KeyboardInterrupt:
        code = 130
    print(show)
    return code


def _print(stage: _Stage, options: PlayOptions) -> int:
    """Print the frames as plain text, for logs and pipes."""
    from rich.text import Text

    show = _Show([])
    for scene in show.watch(stage.scenes(options.seed), options.episodes or 1, options.max_frames):
        print(Text.from_ansi(scene.text).plain, end="\n\n")
    print(show)
    return 0


def _tell(stage: _Stage, options: PlayOptions) -> int:
    """Print what was done in one episode after another, one where their number is not given."""
    scores = []
    for lines, score in islice(stage.blotter(options.seed), options.episodes or 1):
        print("\n".join(lines), end="\n\n")
        scores.append(score)
    print(f"{len(scores)} episode(s), mean return {fmean(scores):.2f}")
    return 0


def _write_log(stage: _Stage, options: PlayOptions) -> int:
    path = Path(options.log)
    _check_place("log", path)
    try:
        stage.write_log(options.seed, path)
    except OSError as error:
        raise UserError(f"--log {path}: not written ({error.strerror or error})") from error
    print(f"{path}: seed {options.seed}, one game")
    return 0


def _check_place(flag: str, path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a directory" if path.is_dir() else f"the directory {path.parent} is not there"
        raise UserError(f"--{flag} {path}: {problem}; give the path of a file to write")


def _film(stage: _Stage, options: PlayOptions, write: Callable[..., None]) -> int:
    seed = options.seed if options.episodes else stage.typical(options.seed)
    show, longest = _Show([]), options.max_frames or LONGEST_VIDEO
    scenes = show.watch(stage.scenes(seed), options.episodes or 1, longest)
    try:
        write(scenes, Path(options.video), options.fps)
    except OSError as error:
        raise UserError(f"--video {options.video}: not written ({error.strerror or error})") from error
    cut = f"; cut at {longest:,} frames (--max-frames)" if show.frames == longest else ""
    print(f"{options.video}: seed {seed}, {show}{cut}")
    return 0


def _film_writer(video: str) -> Callable[..., None]:
    """The function that writes such a file; refuses before anything is played what could not be written after it."""
    path = Path(video)
    if path.suffix.lower() not in _WRITERS:
        raise UserError(f"--video {video}: unknown kind of video; allowed: {', '.join(_WRITERS)}")
    _check_place("video", path)
    from lockstep.reporting import film

    if path.suffix.lower() == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401 - only asked whether it is there
        except ImportError as error:
            raise UserError(f"--video {video}: needs imageio-ffmpeg; pip install 'lockstep[video]'") from error
    return getattr(film, _WRITERS[path.suffix.lower()])
