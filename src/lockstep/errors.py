"""Errors and their exit codes. Each message is one line: what is wrong, where, what is allowed, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class LockstepError(Exception):
    """An error shown to the user as one line; `exit_code` is the command's."""

    exit_code = 3
    details: Sequence[str] = ()
    """Lines shown below it, such as the end of a rank's traceback."""


class UserError(LockstepError):
    """The user's input is wrong; nothing was started."""

    exit_code = 2


class RunFailed(LockstepError):
    """The run itself failed."""

    exit_code = 3


class NoValidCheckpoint(LockstepError):
    """A checkpoint is needed, and none passes verification."""

    exit_code = 4


class StoppedOnRequest(LockstepError):
    """SIGTERM, SIGUSR1 or a closed terminal stopped the run; it saved first, and the same command continues it."""

    # EX_TEMPFAIL of sysexits.h: try again later. Schedulers can requeue on it.
    exit_code = 75


def described(error: BaseException) -> str:
    """The kind of an exception and the first line of its message, as part of an error message.

    Its text may be anybody's, so what a terminal would act on is escaped.
    """
    text = next(iter(str(error).strip().splitlines()), "")[:300]
    escaped = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return f"{type(error).__name__}: {escaped}".rstrip(": ")


def to_json(error: LockstepError) -> dict[str, Any]:
    """An error as it travels to other ranks and processes: nothing is ever unpickled."""
    return {"kind": type(error).__name__, "message": str(error), "details": list(error.details)}


def from_json(content: Mapping[str, Any]) -> LockstepError:
    """The error that another rank or process raised, to raise it here as well."""
    kinds = {kind.__name__: kind for kind in _kinds(LockstepError)}
    # A kind that was never imported here has the exit code of a failed run.
    error = kinds.get(content["kind"], RunFailed)(content["message"])
    error.details = tuple(content["details"])
    return error


def _kinds(kind: type[LockstepError]) -> Iterator[type[LockstepError]]:
    yield kind
    for other in kind.__subclasses__():
        yield from _kinds(other)
