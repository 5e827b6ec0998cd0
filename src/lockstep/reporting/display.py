"""Progress display: one live progress bar in a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lockstep.distributed.world import World
from lockstep.output import is_terminal, tell

Headline = Sequence[tuple[str, str, str]]
"""The metrics to show: (tag, label, number format) each."""
ELAPSED = "elapsed"
"""A tag that stands for the time since the display was opened."""
# Short runs log many times a second; a log file should not grow by every one.
_SECONDS_BETWEEN_LINES = 2.0
Narrator = Callable[[int, Mapping[str, float]], list[str]]
"""A workload's own lines at a log point: takes the step and the metrics, returns lines."""
# What is shown unless a workload chooses. Tags that a run does not have are left out.
_HEADLINE = (
    ("rollout/return_mean", "return", ".2f"),
    ("eval/return_mean", "eval", ".2f"),
    ("train/policy_loss", "policy", ".4f"),
    ("train/value_loss", "value", ".4f"),
    ("train/loss", "loss", ".4f"),
)


class Display(Protocol):
    """Shows progress. Only rank 0 has one that prints."""

    @property
    def speaks(self) -> bool:
        """Whether anybody sees it."""

    def say(self, line: str) -> None:
        """Print a line."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the current step and metrics."""

    def close(self) -> None:
        """Restore the terminal."""


class Silent:
    """The display of all ranks but 0."""

    speaks = False

    def say(self, line: str) -> None:
        """Do nothing."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainLines:
    """For log files and pipes: a line every few seconds, and always the last one."""

    speaks = True

    def __init__(self, total_steps: int, tags: Headline) -> None:
        self._total, self._tags = total_steps, tags
        self._opened = time.monotonic()
        self._shown = 0.0
        self._pending = ""

    def say(self, line: str) -> None:
        """Print immediately, so that a log file can be followed."""
        tell(line)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print, unless the last line was printed less than two seconds ago."""
        shown = headline(metrics, self._tags, time.monotonic() - self._opened)
        # Kept if it is not printed now: `close` prints the last one.
        self._pending = f"step {step:,}/{self._total:,}  {shown}"
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
    """For terminals: a progress bar."""

    speaks = True

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
        # A closed terminal must not end the run, here and below. No markup: a path may contain square brackets.
        with contextlib.suppress(OSError):
            self._console.print(line, highlight=False, markup=False)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move the bar."""
        shown = headline(metrics, self._tags, time.monotonic() - self._opened)
        with contextlib.suppress(OSError):
            self._bar.update(self._task, completed=step, headline=shown)

    def close(self) -> None:
        """Stop updating; the bar's last state stays on the screen."""
        with contextlib.suppress(OSError):
            self._live.stop()


class Narrated:
    """A display that also prints a workload's own lines."""

    def __init__(self, display: Display, narrate: Narrator, past: Iterable[Mapping[str, float]]) -> None:
        self._display, self._narrate = display, narrate
        # A narrator may keep state (best scores, averages): after a resume it first gets the earlier log points. Its
        # lines about those were printed before.
        for metrics in past:
            narrate(int(metrics["step"]), metrics)

    @property
    def speaks(self) -> bool:
        """Whether anybody sees it."""
        return self._display.speaks

    def say(self, line: str) -> None:
        """Print a line."""
        self._display.say(line)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the workload's lines, then show the progress."""
        for line in self._narrate(step, metrics):
            self._display.say(line)
        self._display.progress(step, metrics)

    def close(self) -> None:
        """Close the display."""
        self._display.close()


def headline(metrics: Mapping[str, float], tags: Headline, seconds: float) -> str:
    """Speed and the chosen metrics as one short text; `seconds` since the display was opened."""
    parts = []
    if "time/global_fps" in metrics:
        parts.append(f"{metrics['time/global_fps']:,.0f} steps/s")
    for tag, label, form in tags:
        if tag == ELAPSED:
            parts.append(f"{label} {timedelta(seconds=int(seconds))}")
        elif metrics.get(tag) is not None:  # absent, or null in the log because it was not finite
            parts.append(f"{label} {metrics[tag]:{form}}")
    return "  ".join(parts)


def open_display(world: World, total_steps: int, tags: Headline = ()) -> Display:
    """The display for this rank and this output; `tags`: the metrics to show, if the workload chooses them."""
    if not world.leads:
        return Silent()
    tags = tags or _HEADLINE
    return LiveBar(total_steps, tags) if is_terminal(sys.stdout) else PlainLines(total_steps, tags)
