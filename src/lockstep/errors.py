"""What can go wrong, as exit codes: each error is one line that says what, where, what is allowed and what to do."""

from collections.abc import Sequence


class LockstepError(Exception):
    """An error shown to the user as one line; `exit_code` is what the command ends with."""

    exit_code = 3
    details: Sequence[str] = ()
    """Lines shown below it, such as the last words of a rank."""


class UserError(LockstepError):
    """The user's input is wrong; nothing was started."""

    exit_code = 2


class RunFailed(LockstepError):
    """The run itself failed."""

    exit_code = 3


class NoValidCheckpoint(LockstepError):
    """A checkpoint is needed and none verifies."""

    exit_code = 4


class StoppedOnRequest(LockstepError):
    """SIGTERM, SIGUSR1 or a closed terminal asked the run to stop; it saved first, and the same command goes on."""

    exit_code = 75


def error_of(message: str, exit_code: int) -> LockstepError:
    """An error that another rank raised, to be raised here too."""
    kinds: tuple[type[LockstepError], ...] = (UserError, RunFailed, NoValidCheckpoint, StoppedOnRequest)
    return next(kind for kind in kinds if kind.exit_code == exit_code)(message)
