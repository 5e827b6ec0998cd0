"""`lockstep play`: watch a model in the terminal, or film it."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, median_high
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions, Subject
from lockstep.config.fields import Alias, OffOrCount, Range, Seed
from lockstep.errors import UserError
from lockstep.output import columns, counted, show, suggest
from lockstep.workloads import registry
from lockstep.workloads.capabilities import (
    EvaluatesBaselines,
    KeepsBlotter,
    LogsGames,
    PlayRequest,
    Plays,
    PlaysOneTask,
    Predicts,
)

if TYPE_CHECKING:
    from lockstep.reporting.film import Scene

USAGE = (
    "lockstep play RUN | FILE [--episodes N] [--seed S] [--fps 10] [--stochastic] [--policy NAME]\n"
    "                     [--video out.gif | out.mp4] [--max-frames N] [--only TASK]\n"
    "       lockstep play WORKLOAD --policy NAME [--preset NAME] [--config FILE] [--FIELD VALUE]...\n"
    "       lockstep play RUN --log game.json   or   lockstep play WORKLOAD --replay game.json\n\n"
    "In a terminal the board is animated until Ctrl-C or the last episode; elsewhere the frames are printed. A video\n"
    "shows one typical game: of the nine with seeds S to S+8, the one with the median return. With --episodes N it\n"
    "shows the first N games of seed S. If a workload keeps a blotter (trading), that is printed instead.\n"
    "If it predicts from data (cricket), matches of the data are shown, from number S on."
)
CANDIDATES = 9
"""Games from which a video's game is chosen; odd, so that one of them has the median return."""
LONGEST_VIDEO = 1000
"""Most frames of a video, unless --max-frames says otherwise."""
_WRITERS = {".gif": "write_gif", ".mp4": "write_mp4"}


@dataclass(frozen=True, kw_only=True)
class PlayOptions(ModelOptions):
    """What is shown."""

    episodes: Annotated[OffOrCount, Alias("n_episodes")] = 0
    """Episodes to show; 0 = until Ctrl-C in a terminal, else one."""
    seed: Seed = 2025
    """Seed of the episodes; they are the same as those of `lockstep eval` with this seed."""
    fps: Annotated[float, Range(above=0, at_most=50)] = 10.0
    """Steps shown in a second."""
    stochastic: bool = False
    """Draw actions by their probabilities instead of taking the most probable one."""
    policy: str = TRAINED
    """Who plays: trained (the network) or a baseline of the workload, e.g. scripted, random."""
    video: str = ""
    """Video file to write instead of showing it here: .gif, or .mp4 (needs the extra lockstep-train[video])."""
    log: str = ""
    """JSON file to write the seed's first game to, instead of showing it; only for workloads that log games."""
    replay: str = ""
    """File written with --log, to show instead of a new game."""
    data: str = ""
    """For workloads that learn from data: data to show instead of what the run was validated on."""
    chains: str = ""
    """For trading: files of recorded option quotes, to trade instead of the model's prices."""
    only: str = ""
    """For runs with several tasks (control): the one to show; none = one after the other."""
    bad_files: Literal["refuse", "skip"] | None = None
    """What to do with an unreadable file of --data: refuse (stop), or skip (with a warning); none = as in the run."""
    max_frames: OffOrCount = 0
    """Frames after which to stop; 0 = no limit, or 1,000 in a video."""


@dataclass
class _Show:
    """Counts the frames and returns that were shown."""

    scores: list[float]
    frames: int = 0

    def watch(self, scenes: "Iterator[Scene]", episodes: int, frames: int) -> "Iterator[Scene]":
        """Pass scenes through, up to a number of episodes and frames (0 = no limit), and count them."""
        for scene in islice(scenes, frames or None):
            self.frames += 1
            yield scene
            if scene.ended:
                self.scores.append(scene.score)
                if len(self.scores) == episodes:
                    return

    def __str__(self) -> str:
        if not self.scores:
            return f"{counted(self.frames, 'frame')}, no episode finished"
        episodes = counted(len(self.scores), "episode")
        return f"{episodes}, {counted(self.frames, 'frame')}, mean return {fmean(self.scores):.2f}"


def play(arguments: list[str]) -> int:
    """The verb `play`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(USAGE, PlayOptions))
    options, fields = command.take(rest, PlayOptions())
    subject = models.find(text, options, fields, options.data, options.bad_files, chains=options.chains)
    registry.require(subject.workload, LogsGames if options.replay or options.log else Plays)
    if options.only:
        registry.require(subject.workload, PlaysOneTask).check_task(subject.config, options.only)
    if options.log and options.video:
        raise UserError(f"--log {options.log} and --video {options.video}: only one at a time; run the command twice")
    if not options.replay:
        subject.check_policy(options.policy)
    if options.data or options.chains:
        models.tell_about_data(subject)
    # Checked before the model is loaded, so that a wrong --video fails at once.
    write = _film_writer(options.video) if options.video else None
    stage = _Stage(subject, options)
    if options.log:
        return _write_log(stage, options)
    if write:
        return _film(stage, options, write)
    if not options.replay and isinstance(subject.workload, KeepsBlotter):
        return _tell(stage, options)
    code = _animate(stage, options) if sys.stdout.isatty() else _print(stage, options)
    if code == 0:
        suggest(shlex.join(["lockstep", "play", *arguments, "--video", "game.gif"]))
    return code


class _Stage:
    """The model or baseline and its environment: yields scenes for any seed."""

    def __init__(self, subject: Subject, options: PlayOptions) -> None:
        self._subject, self._options = subject, options
        plays = options.policy == TRAINED and not options.replay
        self._model = models.load(subject, options.device) if plays else None

    def scenes(self, seed: int) -> "Iterator[Scene]":
        """One game after another, or the one that is replayed."""
        if self._options.replay:
            return registry.require(self._subject.workload, LogsGames).read_log(Path(self._options.replay))
        return registry.require(self._subject.workload, Plays).scenes(self._request(seed))

    def _request(self, seed: int) -> PlayRequest:
        return PlayRequest(
            self._subject.config,
            self._act(seed),
            seed,
            pictures=bool(self._options.video),
            only=self._options.only,
            data=self._subject.data,
            bad_files=self._subject.bad_files,
            trained_on=self._model.trained_on if self._model else None,
            columns=columns(sys.stdout),
        )

    def blotter(self, seed: int) -> Iterator[tuple[list[str], float]]:
        """The lines and the return of one episode after another."""
        return registry.require(self._subject.workload, KeepsBlotter).blotter(self._request(seed))

    def write_log(self, seed: int, path: Path) -> None:
        """Write the first game of a seed to a file."""
        logs = registry.require(self._subject.workload, LogsGames)
        logs.write_log(self._subject.config, self._act(seed), seed, path)

    def typical(self, seed: int) -> int:
        """The first of CANDIDATES seeds, from this one on, whose game has the median return."""
        if self._options.replay or isinstance(self._subject.workload, Predicts):
            return seed  # recorded matches: a seed does not make a new one
        if len(self._subject.config.workload.tasks) > 1:
            return seed  # an evaluation plays all tasks, so its score says nothing about the one that is shown
        # What keeps a game from being drawn is found by its first frame, before nine games have been played.
        next(self.scenes(seed))
        if self._model is None:
            world, baseline = models.place_of(self._subject, self._options.device), self._options.policy
            play = registry.require(self._subject.workload, EvaluatesBaselines).evaluate_baseline
            scores = [play(baseline, self._subject.config, world, 1, seed + i).score() for i in range(CANDIDATES)]
        elif self._options.stochastic:
            scores = [_score(self.scenes(seed + i)) for i in range(CANDIDATES)]
        else:
            # The workload's own judge: it plays the days that are shown, not those of training.
            play_trained = self._subject.workload.judge(self._subject.config, self._model.learner, self._model.world)
            scores = [play_trained(1, seed + i).score() for i in range(CANDIDATES)]
        return seed + scores.index(median_high(scores))

    def _act(self, seed: int) -> Any:
        """Who plays, as workloads expect it: a function of the observation, or a baseline's name."""
        if self._model is None:
            return self._options.policy
        return self._model.acting(seed, self._options.stochastic)


def _score(scenes: "Iterator[Scene]") -> float:
    return next(scene.score for scene in scenes if scene.ended)


def _animate(stage: _Stage, options: PlayOptions) -> int:
    """Redraw the board in place until the last episode, or until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    shown, code = _Show([]), 0
    try:
        with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as live:
            due = time.monotonic()
            for scene in shown.watch(stage.scenes(options.seed), options.episodes, options.max_frames):
                live.update(Text.from_ansi(scene.text, no_wrap=True, overflow="crop"), refresh=True)
                # A slow frame delays the next ones; they are not hurried to catch up.
                due = max(due + 1 / options.fps, time.monotonic())
                time.sleep(max(due - time.monotonic(), 0))
    except KeyboardInterrupt:
        code = 130  # 128 + SIGINT, as shells report it; the summary is still printed
    show(str(shown))
    return code


def _print(stage: _Stage, options: PlayOptions) -> int:
    """Print the frames as plain text, for logs and pipes."""
    from rich.text import Text

    shown = _Show([])
    for scene in shown.watch(stage.scenes(options.seed), options.episodes or 1, options.max_frames):
        print(Text.from_ansi(scene.text).plain, end="\n\n")
    show(str(shown))
    return 0


def _tell(stage: _Stage, options: PlayOptions) -> int:
    """Print the blotter of one episode after another; of one episode if --episodes is not given."""
    scores = []
    for lines, score in islice(stage.blotter(options.seed), options.episodes or 1):
        show("\n".join([*lines, ""]))
        scores.append(score)
    show(f"{counted(len(scores), 'episode')}, mean return {fmean(scores):.2f}")
    return 0


def _write_log(stage: _Stage, options: PlayOptions) -> int:
    path = Path(options.log)
    command.check_writable("log", options.log)
    try:
        stage.write_log(options.seed, path)
    except OSError as error:
        raise UserError(f"--log {path}: not written ({error.strerror or error})") from error
    show(f"{path}: seed {options.seed}, one game")
    return 0


def _film(stage: _Stage, options: PlayOptions, write: Callable[..., None]) -> int:
    seed = options.seed if options.episodes else stage.typical(options.seed)
    shown, longest = _Show([]), options.max_frames or LONGEST_VIDEO
    scenes = shown.watch(stage.scenes(seed), options.episodes or 1, longest)
    try:
        write(scenes, Path(options.video), options.fps)
    except OSError as error:
        raise UserError(f"--video {options.video}: not written ({error.strerror or error})") from error
    cut = f"; cut at {longest:,} frames (--max-frames)" if shown.frames == longest else ""
    show(f"{options.video}: seed {seed}, {shown}{cut}")
    return 0


def _film_writer(video: str) -> Callable[..., None]:
    """The function that writes this kind of video; raises before anything is played if it cannot be written."""
    path = Path(video)
    if path.suffix.lower() not in _WRITERS:
        raise UserError(f"--video {video}: unknown video format; allowed: {', '.join(_WRITERS)}")
    command.check_writable("video", video)
    from lockstep.reporting import film

    if path.suffix.lower() == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401 - only to see whether it is installed
        except ImportError as error:
            raise UserError(f"--video {video}: needs imageio-ffmpeg; pip install 'lockstep-train[video]'") from error
    return getattr(film, _WRITERS[path.suffix.lower()])
