"""What a command ended with, for the process that started it: an error as it was raised, not as it was printed."""

import contextlib
import json
import os
from pathlib import Path

from lockstep.errors import LockstepError, from_json, to_json

VARIABLE = "LOCKSTEP_OUTCOME"
"""The environment variable that names the file to write it to; ranks inherit it."""


def write(error: LockstepError) -> None:
    """Leave an error for whoever asked for it; the last one that is written counts."""
    path = os.environ.get(VARIABLE)
    if path:
        # Whoever started the command still has its exit code.
        with contextlib.suppress(OSError):
            Path(path).write_text(json.dumps(to_json(error)))


def read(path: Path) -> LockstepError | None:
    """The error that a command left; None where it left none."""
    text = path.read_text() if path.exists() else ""
    return from_json(json.loads(text)) if text else None
