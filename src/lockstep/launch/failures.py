"""How ranks exited: which of several failures is the root cause, and how it is reported to the user."""

import json
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.launch.heartbeat import NO_READING, Reading

TAIL_LINES = 20
"""Lines of a rank's output that are shown."""
_NCCL_LINES = 6

# What a rank reports after it lost a peer: from gloo, NCCL, the store, and our own barrier. Such a failure is a
# consequence, so another rank's failure is preferred as the cause.
_FOLLOW_ON = re.compile(
    r"Connection closed by (remote )?peer|Connection reset by peer|Connection refused|connectFullMesh|Broken pipe|"
    r"remote process exited|ncclRemoteError|NCCL communicator was aborted|not all ranks arrived|"
    r"failed to recv, got 0 bytes|Socket closed|Application timeout caused pair closure|Timed out waiting|"
    r"Timeout waiting for key"
)
# The subset that says a rank waited for its whole timeout: the peer it waited for may still be running.
_TIMED_OUT = re.compile(r"not all ranks arrived|Application timeout caused pair closure|Timed out waiting|(?i:timeout)")
_MISMATCH = re.compile(r"distributed collective mismatch")
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|\bMemoryError\b|can't allocate memory|_ALLOC_FAILED")
# Lines that say why a rank ended, the most specific first. Not every library puts it on the last line: CUDA and NCCL
# write a line of their own before the exception, C++ puts it after "what():", Python ends a traceback with it.
_REASONS = (
    re.compile(
        r"^.*\b(?:out of memory|OutOfMemoryError|MemoryError|can't allocate memory|_ALLOC_FAILED).*$", re.M | re.I
    ),
    re.compile(r"\bNCCL WARN .*$", re.M),
    re.compile(r"\b(?:CUDA error|Cuda failure)\b.*$", re.M),
    re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failed|Timeout)\b.*$", re.M),
    re.compile(r"(?<=what\(\):).*$", re.M),
)
# Characters: the reason becomes part of a message of one line.
_LONGEST_REASON = 300


def is_out_of_memory(text: str) -> bool:
    """Whether the last line of an exception says that memory ran out, on a GPU or on the host."""
    # The last line only: a traceback may quote source lines that mention memory.
    return bool(_OUT_OF_MEMORY.search(text[text.rstrip().rfind("\n") + 1 :]))


def reason(output: str) -> str:
    """The one line of a rank's output that says why it ended; the last line if no pattern matches."""
    for pattern in _REASONS:
        if found := pattern.findall(output):
            # The last match: in a chain of exceptions it is the one that ended the process.
            return found[-1].strip()[:_LONGEST_REASON]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else ""


@dataclass(frozen=True)
class Exit:
    """How one rank exited."""

    rank: int
    code: int
    """Exit code; negative for a signal."""
    output: str = ""
    """Its traceback, or the end of what it wrote to stderr."""
    raised_at: float | None = None
    """When its exception was raised, in seconds since the epoch; None if it left no traceback."""
    reading: Reading = NO_READING
    """Its last heartbeat: the step and what it was doing."""
    ended_by_launcher: bool = False
    """Whether the launcher killed it because another rank or a machine was gone."""
    silent: bool = False
    """Whether the launcher killed it because its heartbeat had stopped."""
    host: str = ""
    """The name of its machine if there are several."""
    killed_for_memory: bool = False
    """Whether the kernel's out-of-memory killer was active during this attempt."""
    noticed_at: float = field(default_factory=time.time)

    # The properties below are the evidence from which `cause` picks one rank.
    @property
    def killed(self) -> bool:
        """Whether a signal from outside killed it. SIGABRT does not count: NCCL and C++ abort after a peer died."""
        return self.silent or (self.code < 0 and self.code != -signal.SIGABRT and not self.ended_by_launcher)

    @property
    def follows(self) -> bool:
        """Whether it ended only because another rank had ended."""
        return self.ended_by_launcher or bool(_FOLLOW_ON.search(self.output))

    @property
    def mismatched(self) -> bool:
        """Whether ranks may have called different collectives: sizes did not match, or all waited for each other."""
        return bool(_MISMATCH.search(self.output)) or (self.follows and not self.ended_by_launcher)

    @property
    def out_of_memory(self) -> bool:
        """Whether memory ran out."""
        return self.killed_for_memory or (self.code > 0 and is_out_of_memory(self.output))

    @property
    def when(self) -> float:
        """The best estimate of when it failed, in seconds since the epoch."""
        return self.raised_at or self.noticed_at

    def summary(self) -> str:
        """What happened to it, and at which step or time."""
        host = f" on {self.host}" if self.host else ""
        return f"rank {self.rank}{host} {self._what_happened()} at {self.place()}"

    def sentence(self) -> str:
        """The summary with the reason; a kill from outside needs no further one."""
        why = "" if self.killed else reason(self.output)
        return f"{self.summary()}: {why}" if why else self.summary()

    def place(self) -> str:
        """The step and section it was in; the time of day if it never reported a step."""
        return self.reading.where() or time.strftime("%H:%M:%S", time.localtime(self.when))

    def _what_happened(self) -> str:
        # In the order of certainty: what the launcher knows itself, then what the exit code says.
        if self.silent:
            return "no longer answered"
        if self.ended_by_launcher:
            return "never reached the collective that the others waited in,"
        if self.out_of_memory:
            return "was killed by the kernel's out-of-memory killer" if self.code < 0 else "ran out of memory"
        if self.code < 0:
            return f"was killed by {signal_name(-self.code)}"
        if self.code == 0:
            return "left before the others, with exit code 0,"
        return f"ended with exit code {self.code}"

    def last_lines(self) -> list[str]:
        """The end of its output, indented."""
        return [f"  {line}" for line in self.output.splitlines()[-TAIL_LINES:]]


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cause(exits: Sequence[Exit]) -> Exit:
    """The exit that explains the others; at least one of them is a failure."""
    failures = sorted((e for e in exits if e.code), key=lambda e: e.when)
    waited = any(_TIMED_OUT.search(e.output) for e in failures if e.follows and not e.ended_by_launcher)
    # In order: a rank killed from outside; the first failure that does not blame a peer; if all blame a peer, a rank
    # that exited with code 0, or one that was still running after the others had timed out; else whoever failed first.
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
    """The cause with the end of that rank's output, then one line for all the others."""
    # Their tracebacks only say that a peer was lost, and would bury the one that matters.
    others = [str(e.rank) for e in exits if e is not found and e.code and not e.ended_by_launcher]
    folded = [f"rank(s) {', '.join(others)} ended because of it"] if others else []
    hint = [
        "ranks may have called different collectives; "
        "with TORCH_DISTRIBUTED_DEBUG=DETAIL and --sync exact torch names both"
    ]
    return [found.summary(), *found.last_lines(), *folded, *(hint if found.mismatched else [])]


def nccl_log(error_file: Path) -> Path:
    """The file of a rank's NCCL warnings, beside its traceback."""
    return error_file.with_name(f"{error_file.name}.nccl")


def last_output(error_file: Path, log: Path | None) -> tuple[str, float | None]:
    """A rank's traceback and when it was raised; without one, the end of its log. NCCL's last warnings come first."""
    output, raised_at = _traceback(error_file)
    if raised_at is None and log is not None:
        output = _tail(log)
    return with_nccl_log(error_file, output), raised_at


def with_nccl_log(error_file: Path, output: str) -> str:
    """A rank's output with its last NCCL warnings before it, so that the exception stays on the last line."""
    warnings = _tail(nccl_log(error_file)).splitlines()[-_NCCL_LINES:]
    # Together they must fit into the TAIL_LINES that are shown, or the warnings would be cut off again.
    return "\n".join([*warnings, *output.splitlines()[-(TAIL_LINES - len(warnings)) :]]) if warnings else output


def _traceback(error_file: Path) -> tuple[str, float | None]:
    try:
        # The format of torch.distributed.elastic, so torchrun can read the files as well. Its `timestamp` is in whole
        # seconds, too coarse to tell which rank failed first; `time` is ours.
        extra = json.loads(error_file.read_text())["message"]["extraInfo"]
        return extra["py_callstack"].rstrip(), float(extra.get("time", extra["timestamp"]))
    except (OSError, ValueError, KeyError, TypeError):
        return "", None


def _tail(log: Path, size: int = 16_384) -> str:
    try:
        with log.open("rb") as file:
            # The end only: a rank may have written gigabytes of warnings.
            file.seek(max(0, log.stat().st_size - size))
            return file.read().decode(errors="replace").rstrip()
    except OSError:
        return ""
