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

from lockstep.errors import RunFailed, UserError
from lockstep.storage.disk import temporary_name
from lockstep.untrusted import is_counter, open_regular, read_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SMALL = 1 << 16
_LARGEST_PID = 2**31 - 1
_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""
_PATIENCE = 2.0


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: float
    job: str = ""
    """The job that spans machines to which it belongs; empty for a run of one launcher."""
    epoch: int = 0
    """Which of that job's worlds it belongs to: a later one supersedes it."""
    ticks: int = 0
    """When its process began, counted from the machine's own start, so that no change of the clock moves it; 0 where
    the system does not tell."""

    @staticmethod
    def this_process(job: tuple[str, int] | None = None) -> "Holder":
        """The caller; `since` is when its process began, which tells it from a later one of the same number."""
        began = psutil.Process().create_time()
        return Holder(os.getpid(), platform.node(), began, *(job or ("", 0)), ticks=_ticks(os.getpid()))

    def superseded_by(self, other: "Holder") -> bool:
        """Whether the other belongs to a later world of the same job, which knows that this one has lost its peers."""
        return bool(self.job) and self.job == other.job and self.epoch < other.epoch

    def may_live(self) -> bool:
        """Whether the process may still be there: True for another host, of which nothing is known here."""
        if self.host != platform.node():
            return True
        if self.ticks and (ticks := _ticks(self.pid)):
            return ticks == self.ticks
        try:
            return abs(psutil.Process(self.pid).create_time() - self.since) < 1.0
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"


def _ticks(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 where there is none or the system does not tell."""
    try:
        # The name of the program, in brackets, may hold anything.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds, unless a later world of the same job has taken it over."""

    path: Path
    descriptor: int

    def check(self) -> None:
        """RunFailed where the lock was taken over: from then on this process must not write."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise RunFailed(f"{self.path.parent}: {self._whereabouts()}") from None
        if not os.path.samestat(found, os.fstat(self.descriptor)):
            raise RunFailed(
                f"{self.path.parent}: taken over by {_holder(self.path) or 'another process'}, which goes on with the "
                "machines that it reaches; nothing was written here since"
            )

    def _whereabouts(self) -> str:
        """What became of a run's directory that is no longer where it was, and how to go on."""
        with contextlib.suppress(OSError):
            # Linux tells what an open file is called by now.
            now = Path(f"/proc/self/fd/{self.descriptor}").readlink().parent
            if os.fstat(self.descriptor).st_nlink and now != self.path.parent:
                return f"was moved to {now} while it was written to; `lockstep resume {now}` goes on there"
        return (
            f"its {self.path.name} is gone, moved or deleted while it was written to; put the directory back and the "
            "same command goes on from its newest checkpoint"
        )


@contextlib.contextmanager
def hold(path: Path, job: tuple[str, int] | None = None) -> Iterator[Lock]:
    """Hold the lock; UserError naming the holder where another process has it.

    job: the job that spans machines and the number of its world; a later world takes the lock over from an earlier
    one, which may still hang on a machine that is cut off.
    """
    me = Holder.this_process(job)
    descriptor = _open(path)
    try:
        if not _acquire(descriptor, path):
            holder = _holder(path)
            if holder is None or not holder.superseded_by(me):
                raise UserError(
                    f"{path.parent}: in use by {holder or 'another process'}; wait for it, stop it, or choose another "
                    f"--run-name (if it is dead for certain, delete {path.name})"
                )
            descriptor = _take_over(descriptor, path)
        _sign(descriptor, json.dumps(asdict(me)))
        try:
            yield Lock(path, descriptor)
        finally:
            _sign(descriptor, "")
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags, 0o644)


def _take_over(descriptor: int, path: Path) -> int:
    """Put a new lock file, held from the start, in the place of the old: its holder finds another one there."""
    fresh = path.with_name(temporary_name(path.name))
    taken = _open(fresh)
    _lock_once(taken, fresh, exclusive=True)
    fresh.replace(path)
    os.close(descriptor)
    return taken


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        with open_regular(path) as file:
            return not _lock_once(file.fileno(), path, exclusive=False)
    except OSError:
        return False


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
        match read_json(path, _SMALL):
            case {"pid": int(pid), "host": str(host), "since": int() | float() as since, **more}:
                job, epoch, ticks = str(more.get("job", "")), more.get("epoch", 0), more.get("ticks", 0)
                if is_counter(epoch) and is_counter(ticks) and 0 < pid <= _LARGEST_PID and 0 <= since <= _LATEST:
                    return Holder(pid, host, since, job, epoch, ticks) if host.isprintable() else None
    except (OSError, ValueError):
        pass
    return None
