"""Running a command as ranks of one world, on this machine or together with the launchers of others."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lockstep.errors import StoppedOnRequest
from lockstep.launch.agent import SILENCE_LIMIT, Agent
from lockstep.launch.fork_server import ForkServer, opened
from lockstep.launch.machines import Machines
from lockstep.launch.meeting import open_meeting
from lockstep.launch.rank_setup import RankSetup
from lockstep.launch.resources import threads_per_rank
from lockstep.launch.restarts import INTERRUPTED, RestartPolicy, Smaller
from lockstep.launch.secret import own_secret
from lockstep.output import tell

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FOLDER = "lockstep-launcher-"
_LOCK = "lock"
_SETTLED = 60.0
"""Seconds after which a folder without a lock belongs to nobody."""
_LEAVING = (StoppedOnRequest.exit_code, INTERRUPTED)


def run_lockstep(
    argv: Sequence[str],
    ranks: int,
    *,
    machines: Machines | None = None,
    secret: str | None = None,
    threads: int | None = None,
    max_restarts: int = 3,
    timeout: float = 600.0,
    smaller: Smaller = lambda halvings: None,
    modules: Sequence[str] = (),
) -> int:
    """Run `lockstep ARGV` on so many ranks of this machine, restarting after a crash; returns the exit code.

    secret: what the launchers of all machines know; None where there is one machine.
    smaller: how the user would ask for micro-batches halved so many times; None where that cannot be.
    modules: what every rank imports first.
    """
    command, threads = ["-m", "lockstep", *argv], threads_per_rank(ranks, threads)
    with opened(command, modules, threads) as server:
        return run_ranks(
            [sys.executable, *command],
            ranks,
            machines=machines,
            secret=secret,
            threads=threads,
            max_restarts=max_restarts,
            timeout=timeout,
            smaller=smaller,
            fork_server=server,
        )


def run_ranks(
    command: Sequence[str],
    ranks: int,
    *,
    machines: Machines | None = None,
    secret: str | None = None,
    threads: int = 1,
    max_restarts: int = 3,
    timeout: float = 600.0,
    silence_limit: float | None = None,
    smaller: Smaller = lambda halvings: None,
    fork_server: ForkServer | None = None,
    say: Callable[[str], None] = lambda line: tell(line, sys.stderr),
) -> int:
    """Run a command as ranks of one world until they are done; returns the exit code for the user.

    ranks: on this machine. secret: what the launchers of all machines know. timeout: seconds that ranks wait for each
    other, and launchers for other machines. fork_server: where to fork the ranks; without one each is a program of its
    own.
    """
    _sweep_folders()
    # Sooner than the ranks that wait for it give up: then the one that hangs is named, and not one that waited.
    limit = min(SILENCE_LIMIT, timeout / 2) if silence_limit is None else silence_limit
    policy, secret = RestartPolicy(max_restarts, smaller), secret or own_secret()
    with _folder() as folder:
        code = None
        while code is None:
            meeting = open_meeting(machines, ranks, secret, timeout, say) if machines else None
            setup = RankSetup(folder, ranks, threads, secret, meeting)
            agent = Agent(command, ranks, setup, policy, fork_server, meeting, timeout, limit, say)
            try:
                code = agent.conduct()
                if meeting is not None and code is not None:
                    meeting.leave() if code in _LEAVING else meeting.end(code)
            finally:
                if meeting is not None:
                    meeting.close()
    return code


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for this launch that only the user can open; a lock on it tells others that it is in use."""
    with (
        tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as name,
        (Path(name) / _LOCK).open("w") as lock,
    ):
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def _sweep_folders() -> None:
    """Remove what launchers that were killed could not. A lock tells who lives, also in another container."""
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            # A young one may not have its lock yet.
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < _SETTLED:
                continue
            with (folder / _LOCK).open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
