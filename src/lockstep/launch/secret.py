"""The secret of a run, which launchers and ranks prove to each other before any message is accepted."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from lockstep.errors import UserError

VARIABLE = "LOCKSTEP_SECRET"
"""The environment variable that passes it to ranks. Users may set it instead of sharing the run directory's file."""
_FILE = ".secret"
_SHORTEST, _LONGEST = 16, 1024
"""Allowed length in characters; shorter ones could be guessed."""


def own_secret() -> str:
    """The secret of a run on one machine: the user's variable, else a new one for each launch."""
    return _from_environment() or secrets.token_hex(32)


def shared_secret(folder: Path) -> str:
    """The secret of a run on several machines: the user's variable, else a file that only the user can read.

    folder: the run's directory, which the machines share. The first launcher writes the file.
    """
    if given := _from_environment():
        return given
    path, temporary = folder / _FILE, folder / f"{_FILE}-{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            # On disk before it gets its name: another machine must not find an empty file.
            file.flush()
            os.fsync(file.fileno())
        # Creating a hard link is atomic and fails if the name exists, over NFS too: the first launcher wins, and all
        # machines read the same, complete secret.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); set {VARIABLE} on all machines") from error
    finally:
        temporary.unlink(missing_ok=True)
    return _read(path)


def _from_environment() -> str | None:
    value = os.environ.get(VARIABLE)
    if value is not None and not _SHORTEST <= len(value) <= _LONGEST:
        raise UserError(f"{VARIABLE}: has {len(value)} characters; give {_SHORTEST} to {_LONGEST}, or leave it unset")
    return value


def _read(path: Path) -> str:
    """Read the secret; the file must be a regular one that belongs to this user and that nobody else can read."""
    refusal = UserError(
        f"{path}: holds the run's secret and must be a file of yours that only you can read; remove it, or set "
        f"{VARIABLE} on all machines"
    )
    try:
        # Not through a link, and without waiting for a pipe: the folder may be writable by others.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise refusal from error
    with os.fdopen(descriptor) as file:
        # Checked on the open descriptor: the path could be replaced between a check and the open.
        found = os.fstat(descriptor)
        private = stat.S_ISREG(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
        if not private or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
            raise refusal
        value = file.read(_LONGEST + 1)
    if not _SHORTEST <= len(value) <= _LONGEST:
        raise UserError(f"{path}: not a secret ({len(value)} characters); remove the file and start again")
    return value
