"""Says whose code failed, in what, and where its author has to look. Needs no torch."""

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.errors import LockstepError, described

_LOCKSTEP = Path(__file__).parents[1]
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
REMEDY = "correct the environment, then `lockstep resume`, or the same command if nothing was saved yet"
_INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages; Debian has a name of its own."""


@contextmanager
def failures_told(
    failed: Callable[[str], LockstepError], passing: tuple[type[Exception], ...] = (LockstepError,)
) -> Iterator[None]:
    """Raise the error that `failed` makes of what went wrong and where, if an environment's code fails in this context.

    `passing`: exceptions that say enough as they are, or that someone else deals with.
    """
    try:
        yield
    except passing:
        raise
    except (Exception, SystemExit) as error:  # an environment that calls sys.exit has failed, too
        raise failed(f"{described(error)}{place_of(error)}") from error


def place_of(error: BaseException) -> str:
    """Where the author of an environment has to look, after a comma; empty if the error is about what it returned."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    foreign = [frame for frame in frames if not frame[0].is_relative_to(_LOCKSTEP)]
    # An error mostly comes out of a library, because of what the environment has passed to it.
    own = [frame for frame in foreign if not _is_library(frame[0])]
    if not foreign:
        return ""
    path, line = (own or foreign)[-1]
    return f", {path}:{line}"


def _is_library(path: Path) -> bool:
    installed = not _INSTALLED.isdisjoint(path.parts) or path.is_relative_to(_STANDARD_LIBRARY)
    return installed or path.name.startswith("<frozen ")
