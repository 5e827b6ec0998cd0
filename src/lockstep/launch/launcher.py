"""Run a command as the ranks of one world, on this machine or together with the launchers of other machines."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lockstep.errors import RunFailed, StoppedOnRequest
from lockstep.launch import outcome
from lockstep.launch.agent import SILENCE_LIMIT, Agent
from lockstep.launch.fork_server import ForkServer, opened
from lockstep.launch.machines import Machines
from lockstep.launch.rank_setup import RankSetup
from lockstep.launch.rendezvous import open_rendezvous
from lockstep.launch.resources import threads_per_rank
from lockstep.launch.restarts import INTERRUPTED, Decision, RestartPolicy, Smaller
from lockstep.launch.secret import own_secret
from lockstep.output import tell

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FOLDER = "lockstep-launcher-"
_LOCK = "lock"
_SETTLED = 60.0
"""Seconds after which a folder that nobody has locked is left over from a killed launcher."""
_LEAVING = (StoppedOnRequest.exit_code, INTERRUPTED)
"""Exit codes with which this machine leaves a run that the others continue."""


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
    noted: Callable[[Decision], None] = lambda decision: None,
) -> int:
    """Run `lockstep ARGV` as `ranks` ranks on this machine, restarting them after a crash; returns the exit code.

    secret: shared by the launchers of all machines; None on one machine.
    smaller: the flag with which a user would halve micro-batches that many times; None if they cannot be halved.
    modules: what the fork server imports for every rank. noted: told whenever ranks have ended, and what comes next.
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
            noted=noted,
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
    noted: Callable[[Decision], None] = lambda decision: None,
) -> int:
    """Run a command as ranks of one world until they finish; returns the exit code for the user.

    ranks: on this machine. secret: shared by the launchers of all machines. timeout: seconds that ranks wait for each
    other, and launchers for other machines. fork_server: forks the ranks; without one each is a new interpreter.
    """
    # A launcher that was killed by SIGKILL could not remove its own folder.
    _sweep_folders()
    # Shorter than the timeout of the ranks waiting for a hung one, so that the report names it and not its victims.
    limit = min(SILENCE_LIMIT, timeout / 2) if silence_limit is None else silence_limit
    policy, secret = RestartPolicy(max_restarts, smaller), secret or own_secret()
    with _folder() as folder:
        code = None
        # None means that the rendezvous server was lost: open it again. The policy, and with it the count of restarts,
        # carries over.
        while code is None:
            rendezvous = open_rendezvous(machines, ranks, secret, timeout, say) if machines else None
            setup = RankSetup(folder, ranks, threads, secret, rendezvous)
            agent = Agent(command, ranks, setup, policy, fork_server, rendezvous, timeout, limit, say, noted)
            try:
                code = agent.run()
                if code == RunFailed.exit_code and agent.reason:
                    outcome.write(RunFailed(agent.reason))
                # A stopped machine leaves the run to the others; any other end is the end for all.
                if rendezvous is not None and code is not None:
                    rendezvous.leave() if code in _LEAVING else rendezvous.end(code)
            finally:
                if rendezvous is not None:
                    rendezvous.close()
    return code


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A private folder for this launch (mode 0700); a lock marks it as in use."""
    with (
        tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as name,
        (Path(name) / _LOCK).open("w") as lock,
    ):
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def _sweep_folders() -> None:
    """Remove the folders of launchers that were killed."""
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            # A new folder may not have its lock yet.
            # Folders of other users cannot be opened anyway.
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < _SETTLED:
                continue
            with (folder / _LOCK).open("r") as lock:
                # Fails while its launcher lives. A process id would not do: containers that share /tmp have their own.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
