"""What the user sees while a run goes on: one live line in a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lockstep.output import is_terminal, tell

Headline = Sequence[tuple[str, str, str]]
"""What is told of the metrics: tag, word before it and format, one after another."""
ELAPSED = "elapsed"
"""Stands for the time since the display was opened, among the tags."""
_SECONDS_BETWEEN_LINES = 2.0
Narrator = Callable[[int, Mapping[str, float]], list[str]]
"""What a workload has to say at a log point, in lines of its own: the step and the metrics in, lines out."""
_HEADLINE = (
    ("rollout/return_mean", "return", ".2f"),
    ("eval/return_mean", "eval", ".2f"),
    ("train/policy_loss", "policy", ".4f"),
    ("train/value_loss", "value", ".4f"),
    ("train/loss", "loss", ".4f"),
)


class Display(Protocol):
    """Shows progress. Only the leading rank has one that speaks."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show where the run is."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Silent:
    """What the other ranks have."""

    def say(self, line: str) -> None:
        """Nothing."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainLines:
    """For logs and pipes: a line every few seconds, and the last one always."""

    def __init__(self, total_steps: int, tags: Headline) -> None:
        self._total, self._tags = total_steps, tags
        self._opened = time.monotonic()
        self._shown = 0.0
        self._pending = ""

    def say(self, line: str) -> None:
        """Print at once, so that a log can be followed."""
        tell(line)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print if the last line is a while ago."""
        words = headline(metrics, self._tags, time.monotonic() - self._opened)
        self._pending = f"step {step:,}/{self._total:,}  {words}"
        if time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._flush()

    def close(self) -> None:
        """Print the last line if it was held back."""
        self._flush()

    def _flush(self) -> None:
        if self._pending:
            tell(self._pending)
            self._pending, self._shown = "", time.monotonic()


class LiveBar:
    """For terminals: one bar that moves."""

    def __init__(self, total_steps: int, tags: Headline) -> None:
        self._tags = tags
        self._opened = time.monotonic()
        self._console = Console()
        self._bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[headline]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=total_steps, headline="")
        self._live = Live(self._bar, console=self._console, refresh_per_second=4)
        self._live.start()

    def say(self, line: str) -> None:
        """Print above the bar."""
        with contextlib.suppress(OSError):
            self._console.print(line, highlight=False, markup=False)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move the bar."""
        words = headline(metrics, self._tags, time.monotonic() - self._opened)
        with contextlib.suppress(OSError):
            self._bar.update(self._task, completed=step, headline=words)

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        with contextlib.suppress(OSError):
            self._live.stop()


class Narrated:
    """A display with the lines of a narrator, who first hears what was logged before a resume."""

    def __init__(self, display: Display, narrate: Narrator, past: Iterable[Mapping[str, float]]) -> None:
        self._display, self._narrate = display, narrate
        for metrics in past:
            narrate(int(metrics["step"]), metrics)

    def say(self, line: str) -> None:
        """Hand on."""
        self._display.say(line)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell it in the workload's own lines too."""
        for line in self._narrate(step, metrics):
            self._display.say(line)
        self._display.progress(step, metrics)

    def close(self) -> None:
        """Hand on."""
        self._display.close()


def headline(metrics: Mapping[str, float], tags: Headline, seconds: float) -> str:
    """Speed, score and loss in a few words, after so many seconds."""
    words = []
    if "time/global_fps" in metrics:
        words.append(f"{metrics['time/global_fps']:,.0f} steps/s")
    for tag, word, form in tags:
        if tag == ELAPSED:
            words.append(f"{word} {timedelta(seconds=int(seconds))}")
        elif metrics.get(tag) is not None:
            words.append(f"{word} {metrics[tag]:{form}}")
    return "  ".join(words)


def open_display(leads: bool, total_steps: int, tags: Headline = ()) -> Display:
    """The display for this rank and this output; `tags`: what it tells, where a workload has its own way to do so."""
    if not leads:
        return Silent()
    tags = tags or _HEADLINE
    return LiveBar(total_steps, tags) if is_terminal(sys.stdout) else PlainLines(total_steps, tags)
