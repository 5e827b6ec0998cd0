"""Running a command as ranks of one world, on this machine or together with the launchers of others."""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from torch.distributed.elastic.agent.server.api import WorkerSpec

from lockstep.core.distributed.agent import MONITOR_INTERVAL, SILENCE_LIMIT, Agent
from lockstep.core.distributed.machines import Machines
from lockstep.core.distributed.nursery import Nursery
from lockstep.core.distributed.outfit import Outfit
from lockstep.core.distributed.rendezvous import open_meeting
from lockstep.core.distributed.restarts import INTERRUPTED, RestartPolicy, Smaller
from lockstep.core.errors import StoppedOnRequest

_FOLDER = "lockstep-launcher-"
_LEAVING = (StoppedOnRequest.exit_code, INTERRUPTED)


def run_ranks(
    command: Sequence[str],
    ranks: int,
    *,
    machines: Machines | None = None,
    threads: int = 1,
    max_restarts: int = 3,
    timeout: float = 600.0,
    silence_limit: float | None = None,
    smaller: Smaller = lambda halvings: None,
    nursery: Nursery | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> int:
    """Run a command as ranks of one world until they are done; returns the exit code for the user.

    ranks: on this machine. timeout: seconds that ranks wait for each other, and launchers for other machines.
    nursery: where to fork the ranks; without one each is a program of its own.
    """
    _hush_elastic_logs()
    _sweep_folders()
    # Sooner than the ranks that wait for it give up: then the one that hangs is named, and not one that waited.
    limit = min(SILENCE_LIMIT, timeout / 2) if silence_limit is None else silence_limit
    policy = RestartPolicy(max_restarts, smaller)
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        code = None
        while code is None:
            outfit = Outfit(Path(folder), threads)
            code = _run_once(command, ranks, machines, outfit, policy, nursery, timeout, limit, say)
    return code


def _run_once(
    command: Sequence[str],
    ranks: int,
    machines: Machines | None,
    outfit: Outfit,
    policy: RestartPolicy,
    nursery: Nursery | None,
    timeout: float,
    silence_limit: float,
    say: Callable[[str], None],
) -> int | None:
    """One meeting and all that follows from it; None where its place was lost and is to be looked for again."""
    meeting = open_meeting(machines, timeout)
    spec = WorkerSpec(
        role="lockstep",
        local_world_size=ranks,
        entrypoint=command[0],
        args=tuple(command[1:]),
        rdzv_handler=meeting,
        max_restarts=0,
        monitor_interval=MONITOR_INTERVAL,
    )
    code = Agent(spec, outfit, policy, nursery, silence_limit, say).conduct()
    if machines is None or code not in (None, *_LEAVING):
        meeting.end(code or 0)
    elif code is not None:
        meeting.leave()
    return code


def _hush_elastic_logs() -> None:
    # The agent logs every failure as an error of its own; the user gets our one report instead.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _sweep_folders() -> None:
    """Remove what launchers that were killed could not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
