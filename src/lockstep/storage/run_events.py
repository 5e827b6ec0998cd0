"""What happened to a run, in the order of time: events.jsonl. Unlike the metrics it is never cut back by a resume."""

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from lockstep.untrusted import LATEST, is_counter, lines_from_end, open_to_append, parse_json

EVENTS = "events.jsonl"
Kind = Literal["started", "resumed", "restart", "checkpoint", "warning", "stopped", "finished", "failed"]
"""`restart`: a rank died and the launcher starts all of them again; `resumed`: they continue from a checkpoint."""
KINDS: tuple[str, ...] = get_args(Kind)
# Bytes. Nothing is added to a longer file, and of one only the end is read.
_LARGEST = 4 << 20
_LONGEST_LINE = 4096
_LONGEST_TEXT = 1000


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    time: float
    """Seconds since 1970."""
    kind: str
    """One of KINDS."""
    text: str
    step: int | None = None
    """The step it happened at; None if whoever noted it does not know."""


def note(directory: Path, kind: Kind, text: str, step: int | None = None) -> None:
    """Add an event; one that cannot be written is dropped, since no run should fail for its diary."""
    event = Event(round(time.time(), 3), kind, text[:_LONGEST_TEXT], step)
    with contextlib.suppress(OSError), open_to_append(directory / EVENTS) as file:
        if file.tell() < _LARGEST:
            file.write((json.dumps(asdict(event)) + "\n").encode())


def read(directory: Path) -> list[Event]:
    """The events of a run, oldest first; lines that are no events are left out."""
    try:
        lines = [line for _, line in lines_from_end(directory / EVENTS, _LONGEST_LINE, _LARGEST)]
    except OSError:
        return []
    return [event for line in reversed(lines) if (event := _event(line)) is not None]


def _event(line: bytes) -> Event | None:
    """An event with every field checked: the file may have been written by anybody."""
    try:
        content: Any = parse_json(line)
    except ValueError:
        return None
    match content:
        case {"time": int() | float() as when, "kind": str(kind), "text": str(text), **more} if (
            kind in KINDS and 0 <= when <= LATEST
        ):
            step = more.get("step")
            if step is None or is_counter(step):
                return Event(float(when), kind, text, step)
    return None
