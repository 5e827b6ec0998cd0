"""One writer per run: a file lock that the kernel releases when its holder dies, however it dies.

The file names its holder, for messages and for file systems without locks. A job that spans several machines numbers
its worlds (`epoch`); a later world replaces the lock file of an earlier one, which may still hang on a machine that is
cut off.
"""

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
from lockstep.untrusted import LATEST, is_counter, open_regular, read_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Bytes; a larger file is not a lock of ours.
_SMALL = 1 << 16
_LARGEST_PID = 2**31 - 1
# Seconds to retry for: `is_held` takes the lock for a moment to test it.
_PATIENCE = 2.0


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    pid: int
    host: str
    since: float
    """When its process started, in seconds since 1970."""
    job: str = ""
    """Its job, if that spans several machines; empty for a run of one launcher."""
    epoch: int = 0
    """The number of its world within the job: a later world supersedes it."""
    ticks: int = 0
    """When its process started, in clock ticks since boot, which setting the clock does not change; 0 if unknown."""

    @staticmethod
    def this_process(job: tuple[str, int] | None = None) -> "Holder":
        """The calling process."""
        # The start time distinguishes it from a later process that was given the same pid.
        started = psutil.Process().create_time()
        return Holder(os.getpid(), platform.node(), started, *(job or ("", 0)), ticks=_ticks(os.getpid()))

    def superseded_by(self, other: "Holder") -> bool:
        """Whether the other belongs to a later world of the same job, started after this one lost its peers."""
        return bool(self.job) and self.job == other.job and self.epoch < other.epoch

    def may_live(self) -> bool:
        """Whether the process may still be running; True for another host, whose processes are not visible here."""
        if self.host != platform.node():
            return True
        if self.ticks and (ticks := _ticks(self.pid)):
            return ticks == self.ticks
        try:
            # A second of tolerance: psutil derives the time from the boot time, which moves as the clock is adjusted.
            return abs(psutil.Process(self.pid).create_time() - self.since) < 1.0
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"


def _ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if it does not exist or the system cannot say."""
    try:
        # starttime is field 22 of /proc/PID/stat. Counted from behind the program's name, which is in parentheses and
        # may itself contain blanks and parentheses.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds until a later world of the same job takes it over."""

    path: Path
    descriptor: int

    def check(self) -> None:
        """RunFailed if the lock was taken over or its file is gone: this process must not write any more."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise RunFailed(f"{self.path.parent}: {self._whereabouts()}") from None
        # A take-over replaces the file, so the path then leads to another inode than the one that is open here.
        if not os.path.samestat(found, os.fstat(self.descriptor)):
            raise RunFailed(
                f"{self.path.parent}: taken over by {_holder(self.path) or 'another process'}, which continues the run "
                "on the machines that it reaches; this process has written nothing since"
            )

    def _whereabouts(self) -> str:
        """What happened to a run directory that is no longer at its path, and how to continue."""
        with contextlib.suppress(OSError):
            # On Linux this link shows the current name of an open file.
            now = Path(f"/proc/self/fd/{self.descriptor}").readlink().parent
            # st_nlink is 0 once the file is deleted; its last name then means nothing.
            if os.fstat(self.descriptor).st_nlink and now != self.path.parent:
                return f"was moved to {now} during the run; `lockstep resume {now}` continues there"
        return (
            f"its {self.path.name} was moved or deleted during the run; put the directory back, and the "
            "same command continues from its newest checkpoint"
        )


@contextlib.contextmanager
def hold(path: Path, job: tuple[str, int] | None = None) -> Iterator[Lock]:
    """Hold the lock; UserError naming the holder if another process has it.

    `job`: a job that spans several machines and the number of its world. A later world takes over the lock of an
    earlier one.
    """
    me = Holder.this_process(job)
    descriptor = _open(path)
    try:
        if not _acquire(descriptor, path):
            holder = _holder(path)
            if holder is None or not holder.superseded_by(me):
                raise UserError(
                    f"{path.parent}: in use by {holder or 'another process'}; wait for it, stop it, or choose another "
                    f"--run-name (if you are sure that it is dead, delete {path.name})"
                )
            descriptor = _take_over(descriptor, path)
        _sign(descriptor, json.dumps(asdict(me)))
        try:
            yield Lock(path, descriptor)
        finally:
            # Emptied, not deleted: a process that opened the file just before would lock one that nobody else sees.
            _sign(descriptor, "")
    finally:
        # Closing releases the kernel's lock.
        os.close(descriptor)


def _open(path: Path) -> int:
    # No link and no waiting for a pipe: what is at this path may have been put there by somebody else.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags, 0o644)


def _take_over(descriptor: int, path: Path) -> int:
    """Replace the lock file with a new one; the old holder notices in `Lock.check`."""
    # Locked before it is renamed into place, so that at no moment can a third process take it.
    fresh = path.with_name(temporary_name(path.name))
    taken = _open(fresh)
    _lock_once(taken, fresh, exclusive=True)
    fresh.replace(path)
    os.close(descriptor)
    return taken


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        # Shared, so that several processes that only look do not take each other for the holder.
        with open_regular(path) as file:
            return not _lock_once(file.fileno(), path, exclusive=False)
    except OSError:
        return False


def _sign(descriptor: int, text: str) -> None:
    """Write the holder into the lock file; on a full disk the lock is held without a name."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _acquire(descriptor: int, path: Path) -> bool:
    """Try for up to two seconds: a process that calls `is_held` has the lock for a moment."""
    deadline = time.monotonic() + _PATIENCE
    while not _lock_once(descriptor, path, exclusive=True):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _lock_once(descriptor: int, path: Path, *, exclusive: bool) -> bool:
    """Take the kernel's lock without waiting; on a file system without locks, trust the holder named in the file."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # some network file systems have no locks
        else:
            return True
    holder = _holder(path)
    return holder is None or not holder.may_live()


def _holder(path: Path) -> Holder | None:
    """The holder named in a lock file; None if it names none or nothing that a process could have written."""
    try:
        # Every value is checked before it is used: the file may have been edited, and the host's name is printed.
        match read_json(path, _SMALL):
            case {"pid": int(pid), "host": str(host), "since": int() | float() as since, **more}:
                job, epoch, ticks = str(more.get("job", "")), more.get("epoch", 0), more.get("ticks", 0)
                if is_counter(epoch) and is_counter(ticks) and 0 < pid <= _LARGEST_PID and 0 <= since <= LATEST:
                    return Holder(pid, host, since, job, epoch, ticks) if host.isprintable() else None
    except (OSError, ValueError):
        pass
    return None
