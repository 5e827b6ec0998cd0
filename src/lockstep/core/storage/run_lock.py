"""One run, one writer: a lock that the kernel frees when its holder dies, however it dies."""

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import psutil

from lockstep.core.errors import UserError
from lockstep.core.storage.disk import read_small

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SMALL = 1 << 16
_PATIENCE = 2.0


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: float

    @staticmethod
    def this_process() -> "Holder":
        """The caller; `since` is when its process began, which tells it from a later one of the same number."""
        return Holder(os.getpid(), platform.node(), psutil.Process().create_time())

    def may_live(self) -> bool:
        """Whether the process may still be there: True for another host, of which nothing is known here."""
        if self.host != platform.node():
            return True
        try:
            return abs(psutil.Process(self.pid).create_time() - self.since) < 1.0
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock; UserError naming the holder where another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        if not _acquire(descriptor, path):
            raise UserError(
                f"{path.parent}: in use by {_holder(path) or 'another process'}; "
                f"wait for it, stop it, or choose another --run-name (if it is dead for certain, delete {path.name})"
            )
        _sign(descriptor, json.dumps(asdict(Holder.this_process())))
        try:
            yield
        finally:
            _sign(descriptor, "")
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        return not _lock_once(descriptor, path, exclusive=False)
    finally:
        os.close(descriptor)


def _sign(descriptor: int, text: str) -> None:
    """Write who holds the lock; a full disk leaves it unsigned, but held."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _acquire(descriptor: int, path: Path) -> bool:
    """Try for a moment: someone who only looks whether the lock is held holds it for that long."""
    deadline = time.monotonic() + _PATIENCE
    while not _lock_once(descriptor, path, exclusive=True):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _lock_once(descriptor: int, path: Path, *, exclusive: bool) -> bool:
    """Take the kernel's lock; where the file system has none, believe what the file says."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        else:
            return True
    holder = _holder(path)
    return holder is None or not holder.may_live()


def _holder(path: Path) -> Holder | None:
    try:
        match json.loads(read_small(path, _SMALL)):
            case {"pid": int(pid), "host": str(host), "since": int() | float() as since}:
                return Holder(pid, host, since)
    except (OSError, ValueError):
        pass
    return None
