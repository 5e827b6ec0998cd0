"""Progress display: one live progress bar in a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from lockstep.distributed.world import World
from lockstep.output import fitted, is_terminal, tell

Headline = Sequence[tuple[str, str, str]]
"""The metrics to show: (tag, label, number format) each."""
ELAPSED = "elapsed"
"""A tag that stands for the time since the display was opened."""
Detail = Literal["quiet", "normal", "verbose"]
"""How much is shown: warnings and the result; progress as well; or also the workload's own lines."""
WARNING = "warning: "
"""How the line of a warning begins."""
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

    def say(self, line: str) -> None:
        """Print a line."""

    def conclude(self, line: str) -> None:
        """Print a line about how the run ended."""

    def answer(self, line: str) -> None:
        """Print a line for whoever asked the run to stop, from any thread."""

    def begin(self, total_steps: int) -> None:
        """Start showing progress."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the current step and metrics."""

    def close(self) -> None:
        """Restore the terminal."""


class Silent:
    """The display of all ranks but 0."""

    def say(self, line: str) -> None:
        """Do nothing."""

    def conclude(self, line: str) -> None:
        """Do nothing."""

    def answer(self, line: str) -> None:
        """Do nothing."""

    def begin(self, total_steps: int) -> None:
        """Do nothing."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Quiet(Silent):
    """Warnings and the result alone."""

    def say(self, line: str) -> None:
        """Print a warning."""
        if line.startswith(WARNING):
            tell(line)

    def conclude(self, line: str) -> None:
        """Print it."""
        tell(line)

    def answer(self, line: str) -> None:
        """Print it where errors go."""
        tell(line, sys.stderr)


class PlainLines:
    """For log files and pipes: a line every few seconds, and always the last one."""

    def __init__(self, tags: Headline) -> None:
        self._tags, self._total = tags, 0
        self._opened = time.monotonic()
        self._shown = 0.0
        self._pending = ""

    def say(self, line: str) -> None:
        """Print immediately, so that a log file can be followed."""
        tell(line)

    def conclude(self, line: str) -> None:
        """Print it like any other."""
        tell(line)

    def answer(self, line: str) -> None:
        """Print it where errors go: the terminal may be there, and not at the end of the pipe."""
        tell(line, sys.stderr)

    def begin(self, total_steps: int) -> None:
        """Note of how many steps each line is to tell."""
        self._total = total_steps

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print, unless the last line was printed less than two seconds ago."""
        shown = headline(metrics, self._tags, time.monotonic() - self._opened)
        # Kept if it is not printed now: `close` prints the last one.
        self._pending = f"step {step:,}/{self._total:,}  {'  '.join(shown)}"
        if time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._flush()

    def close(self) -> None:
        """Print the last line if it was held back."""
        self._flush()

    def _flush(self) -> None:
        if self._pending:
            tell(self._pending)
            self._pending, self._shown = "", time.monotonic()


class _Fitted:
    """Texts in one line, as many as fit: the last ones are left out where a terminal is narrow."""

    def __init__(self, *texts: str) -> None:
        self.texts: Sequence[str] = texts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for text in self.texts:
            longer = f"{line}  {text}".lstrip()
            if len(longer) > options.max_width:
                break
            line = longer
        yield Text(line, no_wrap=True, overflow="crop")


class LiveBar:
    """For terminals: a line with the bar, the steps and the time left, and below it one with the metrics."""

    def __init__(self, tags: Headline) -> None:
        self._tags = tags
        self._opened = time.monotonic()
        self._console = Console(highlight=False, markup=False)
        self._bar = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.percentage:.0f}%"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            expand=True,
        )
        self._metrics = _Fitted("first update")
        self._live: Live | None = None
        self._task = self._bar.add_task("", total=None, start=False)

    def say(self, line: str) -> None:
        """Print above the bar; what does not fit is continued below itself."""
        # A closed terminal must not end the run, here and below.
        with contextlib.suppress(OSError):
            # The width is asked anew each time: the window may have been resized.
            for part in fitted(line, self._console.width):
                self._console.print(part, soft_wrap=True)

    def conclude(self, line: str) -> None:
        """Print it like any other."""
        self.say(line)

    def answer(self, line: str) -> None:
        """Print it above the bar."""
        self.say(line)

    def begin(self, total_steps: int) -> None:
        """Show the bar."""
        self._bar.update(self._task, total=total_steps)
        self._bar.start_task(self._task)
        self._live = Live(self, console=self._console, refresh_per_second=4)
        with contextlib.suppress(OSError):
            self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._bar
        yield self._metrics

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move the bar."""
        self._metrics.texts = headline(metrics, self._tags, time.monotonic() - self._opened)
        with contextlib.suppress(OSError):
            self._bar.update(self._task, completed=step)

    def close(self) -> None:
        """Stop updating; the bar's last state stays on the screen."""
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()


class Narrated:
    """A display that also prints a workload's own lines."""

    def __init__(self, display: Display, narrate: Narrator, past: Iterable[Mapping[str, float]]) -> None:
        self._display, self._narrator = display, narrate
        self._complained = False
        # A narrator may keep state (best scores, averages): after a resume it first gets the earlier log points. Its
        # lines about those were printed before.
        for metrics in past:
            # Numbers that were not finite are null in the log.
            self._narrate(int(metrics["step"]), {tag: value for tag, value in metrics.items() if value is not None})

    def _narrate(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """The workload's lines; where it fails, none, and one warning for the whole run."""
        try:
            return self._narrator(step, metrics)
        except Exception as error:  # a workload's own code may raise anything, and a display must not end a run
            if not self._complained:
                self._display.say(f"{WARNING}the workload's own lines: {type(error).__name__}: {error}; left out")
            self._complained = True
            return []

    def say(self, line: str) -> None:
        """Print a line."""
        self._display.say(line)

    def conclude(self, line: str) -> None:
        """Print a line about how the run ended."""
        self._display.conclude(line)

    def answer(self, line: str) -> None:
        """Print a line for whoever asked the run to stop."""
        self._display.answer(line)

    def begin(self, total_steps: int) -> None:
        """Start showing progress."""
        self._display.begin(total_steps)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the workload's lines, then show the progress."""
        for line in self._narrate(step, metrics):
            self._display.say(line)
        self._display.progress(step, metrics)

    def close(self) -> None:
        """Close the display."""
        self._display.close()


def headline(metrics: Mapping[str, float], tags: Headline, seconds: float) -> list[str]:
    """Speed and the chosen metrics, a short text each; `seconds` since the display was opened."""
    parts = []
    if "time/global_fps" in metrics:
        parts.append(f"{metrics['time/global_fps']:,.0f} steps/s")
    for tag, label, form in tags:
        if tag == ELAPSED:
            parts.append(f"{label} {timedelta(seconds=int(seconds))}")
        elif metrics.get(tag) is not None:  # absent, or null in the log because it was not finite
            parts.append(f"{label} {metrics[tag]:{form}}")
    return parts


def open_display(world: World, tags: Headline = (), detail: Detail = "normal") -> Display:
    """The display for this rank and this output; `tags`: the metrics to show, if the workload chooses them."""
    if not world.leads:
        return Silent()
    if detail == "quiet":
        return Quiet()
    tags = tags or _HEADLINE
    return LiveBar(tags) if is_terminal(sys.stdout) else PlainLines(tags)
