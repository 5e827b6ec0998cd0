"""How ranks ended: which of several failures is the cause, and what the user is told about it."""

import json
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.launch.heartbeat import NO_READING, Reading

TAIL_LINES = 20
_NCCL_LINES = 6

# What a rank reports when another one has gone: with gloo, with NCCL, and in our own barrier.
_FOLLOW_ON = re.compile(
    r"Connection closed by (remote )?peer|Connection reset by peer|Connection refused|connectFullMesh|Broken pipe|"
    r"remote process exited|ncclRemoteError|NCCL communicator was aborted|not all ranks arrived|"
    r"failed to recv, got 0 bytes|Socket closed|Application timeout caused pair closure|Timed out waiting|"
    r"Timeout waiting for key"
)
_WAITED_IN_VAIN = re.compile(
    r"not all ranks arrived|Application timeout caused pair closure|Timed out waiting|(?i:timeout)"
)
_AT_ODDS = re.compile(r"distributed collective mismatch")
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|\bMemoryError\b|can't allocate memory|_ALLOC_FAILED")
# What says why a rank ended, the most telling first. Libraries name the fault before or below the exception of it:
# CUDA and NCCL on lines of their own, C++ after "what():", Python unindented at the end of a traceback.
_REASONS = (
    re.compile(
        r"^.*\b(?:out of memory|OutOfMemoryError|MemoryError|can't allocate memory|_ALLOC_FAILED).*$", re.M | re.I
    ),
    re.compile(r"\bNCCL WARN .*$", re.M),
    re.compile(r"\b(?:CUDA error|Cuda failure)\b.*$", re.M),
    re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failed|Timeout)\b.*$", re.M),
    re.compile(r"(?<=what\(\):).*$", re.M),
)
_LONGEST_REASON = 300


def tells_of_memory(text: str) -> bool:
    """Whether an exception's last line says that memory was wanting, on a GPU or in the machine."""
    return bool(_OUT_OF_MEMORY.search(text[text.rstrip().rfind("\n") + 1 :]))


def reason(told: str) -> str:
    """The one line of a rank's last words that says why it ended; the last line where none stands out."""
    for pattern in _REASONS:
        if found := pattern.findall(told):
            return found[-1].strip()[:_LONGEST_REASON]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else ""


@dataclass(frozen=True)
class Exit:
    """How one rank ended."""

    rank: int
    code: int
    """Exit code; negative for a signal."""
    told: str = ""
    """Its traceback, or the end of what it wrote to stderr."""
    raised_at: float | None = None
    """When its exception was raised, in seconds since the epoch; None where it left no traceback."""
    reading: Reading = NO_READING
    """Where it was."""
    ended_by_launcher: bool = False
    silent: bool = False
    """Whether the launcher ended it because it no longer answered."""
    host: str = ""
    """Its machine, where there are several."""
    killed_for_memory: bool = False
    """Whether the kernel killed a process for want of memory while it ran."""
    noticed_at: float = field(default_factory=time.time)

    @property
    def killed(self) -> bool:
        """Whether a signal from outside ended it; an abort may be its own answer to a peer's death."""
        return self.silent or (self.code < 0 and self.code != -signal.SIGABRT and not self.ended_by_launcher)

    @property
    def follows(self) -> bool:
        """Whether it ended because another rank had."""
        return self.ended_by_launcher or bool(_FOLLOW_ON.search(self.told))

    @property
    def at_odds(self) -> bool:
        """Whether ranks may have made different exchanges: their data did not match, or all waited for each other."""
        return bool(_AT_ODDS.search(self.told)) or (self.follows and not self.ended_by_launcher)

    @property
    def out_of_memory(self) -> bool:
        """Whether memory was wanting."""
        return self.killed_for_memory or (self.code > 0 and tells_of_memory(self.told))

    @property
    def when(self) -> float:
        """As near to its failure as is known."""
        return self.raised_at or self.noticed_at

    def summary(self) -> str:
        """What happened to it, and where or when."""
        host = f" on {self.host}" if self.host else ""
        return f"rank {self.rank}{host} {self._what_happened()} at {self.place()}"

    def sentence(self) -> str:
        """The summary with the reason; a kill from outside needs no other."""
        why = "" if self.killed else reason(self.told)
        return f"{self.summary()}: {why}" if why else self.summary()

    def place(self) -> str:
        """The step and section where it was; before it told any, the time of day."""
        return self.reading.where() or time.strftime("%H:%M:%S", time.localtime(self.when))

    def _what_happened(self) -> str:
        if self.silent:
            return "no longer answered"
        if self.ended_by_launcher:
            return "did not come to where the others waited for it,"
        if self.out_of_memory:
            return "was killed by the kernel for want of memory" if self.code < 0 else "ran out of memory"
        if self.code < 0:
            return f"was killed by {signal_name(-self.code)}"
        if self.code == 0:
            return "left before the others, with exit code 0,"
        return f"ended with exit code {self.code}"

    def last_lines(self) -> list[str]:
        """The end of what it told, indented."""
        return [f"  {line}" for line in self.told.splitlines()[-TAIL_LINES:]]


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cause(exits: Sequence[Exit]) -> Exit:
    """The exit that explains the others; at least one of them is a failure."""
    failures = sorted((e for e in exits if e.code), key=lambda e: e.when)
    waited = any(_WAITED_IN_VAIN.search(e.told) for e in failures if e.follows and not e.ended_by_launcher)
    # A kill from outside needs no other reason; then whoever failed first without pointing at a peer. Where all point
    # at a peer, a rank that left quietly is it, or one that was still there when the others had waited in vain.
    for candidates in (
        [e for e in failures if e.killed],
        [e for e in failures if not e.follows],
        [e for e in exits if not e.code],
        [e for e in failures if e.ended_by_launcher and waited],
        [e for e in failures if not e.ended_by_launcher],
    ):
        if candidates:
            return candidates[0]
    return failures[0]


def report(exits: Sequence[Exit], found: Exit) -> list[str]:
    """The cause with the end of what that rank told, then one line for all others."""
    others = [str(e.rank) for e in exits if e is not found and e.code and not e.ended_by_launcher]
    folded = [f"rank(s) {', '.join(others)} ended because of it"] if others else []
    hint = ["ranks may have made different exchanges; with TORCH_DISTRIBUTED_DEBUG=DETAIL torch names both"]
    return [found.summary(), *found.last_lines(), *folded, *(hint if found.at_odds else [])]


def nccl_words(error_file: Path) -> Path:
    """Where NCCL writes its warnings in a rank of our launcher: beside the rank's traceback."""
    return error_file.with_name(f"{error_file.name}.nccl")


def last_words(error_file: Path, log: Path | None) -> tuple[str, float | None]:
    """A rank's traceback and when it was raised; without one, the end of its log. NCCL's last warnings come first."""
    told, raised_at = _traceback(error_file)
    if raised_at is None and log is not None:
        told = _tail(log)
    return after_nccl(error_file, told), raised_at


def after_nccl(error_file: Path, told: str) -> str:
    """What a rank told, after the last warnings of its NCCL; the last line stays what was raised."""
    warnings = _tail(nccl_words(error_file)).splitlines()[-_NCCL_LINES:]
    return "\n".join([*warnings, *told.splitlines()[-(TAIL_LINES - len(warnings)) :]]) if warnings else told


def _traceback(error_file: Path) -> tuple[str, float | None]:
    try:
        extra = json.loads(error_file.read_text())["message"]["extraInfo"]
        return extra["py_callstack"].rstrip(), float(extra.get("time", extra["timestamp"]))
    except (OSError, ValueError, KeyError, TypeError):
        return "", None


def _tail(log: Path, size: int = 16_384) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size))
            return file.read().decode(errors="replace").rstrip()
    except OSError:
        return ""
