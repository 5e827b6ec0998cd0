"""The secret of a run: what its launchers and ranks prove to know before anything they say is believed."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from lockstep.errors import UserError

VARIABLE = "LOCKSTEP_SECRET"
"""The environment variable that hands it to ranks; users may set it instead of sharing it by the run directory."""
_FILE = ".secret"
_SHORTEST, _LONGEST = 16, 1024


def own_secret() -> str:
    """What a launcher on one machine gives its ranks: the user's, else a new one."""
    return _from_environment() or secrets.token_hex(32)


def shared_secret(folder: Path) -> str:
    """What all launchers of a run on several machines find: the user's variable, else a file that only he may read.

    folder: the run's directory, which the machines share. The first to come writes the file.
    """
    if given := _from_environment():
        return given
    path, written = folder / _FILE, folder / f"{_FILE}-{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        # A link appears whole or not at all, and only where there is none: all machines end up with one secret.
        with contextlib.suppress(FileExistsError):
            os.link(written, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); set {VARIABLE} on all machines") from error
    finally:
        written.unlink(missing_ok=True)
    return _read(path)


def _from_environment() -> str | None:
    value = os.environ.get(VARIABLE)
    if value is not None and not _SHORTEST <= len(value) <= _LONGEST:
        raise UserError(f"{VARIABLE}: has {len(value)} characters; give {_SHORTEST} to {_LONGEST}, or leave it unset")
    return value


def _read(path: Path) -> str:
    """The secret in a file, which must be a plain one of this user that nobody else can read."""
    refusal = UserError(
        f"{path}: holds the run's secret and must be a file of yours that only you can read; remove it, or set "
        f"{VARIABLE} on all machines"
    )
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise refusal from error
    with os.fdopen(descriptor) as file:
        found = os.fstat(descriptor)
        private = stat.S_ISREG(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
        if not private or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
            raise refusal
        value = file.read(_LONGEST + 1)
    if not _SHORTEST <= len(value) <= _LONGEST:
        raise UserError(f"{path}: holds no secret ({len(value)} characters); remove it and start again")
    return value
