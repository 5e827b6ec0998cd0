"""The launcher's side of a run on one machine: PyTorch's elastic agent, kept on loopback and taught our exit codes."""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from torch import distributed as dist
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.events import Event, EventSource
from torch.distributed.elastic.multiprocessing import SignalException, SubprocessContext
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from lockstep.core.distributed.failures import Exit
from lockstep.core.distributed.outfit import Outfit
from lockstep.core.distributed.restarts import INTERRUPTED, RestartPolicy
from lockstep.core.distributed.store import host_store, loopback_listener
from lockstep.core.errors import StoppedOnRequest

MONITOR_INTERVAL = 0.1
SILENCE_LIMIT = 120.0
"""Seconds without a beat after which a rank counts as hung."""

# Seconds for the other ranks to end by themselves once one has ended with this code. Those that stop on request have
# agreed on it, and the slowest may still be writing the checkpoint; nobody waits for the peers of a crashed one.
_GRACE = {StoppedOnRequest.exit_code: 60.0, INTERRUPTED: 5.0}
_CRASH_GRACE = 2.0
_STORE_TIMEOUT = 60.0
_FOLDER = "lockstep-launcher-"


def run_ranks(
    command: Sequence[str],
    ranks: int,
    *,
    threads: int = 1,
    max_restarts: int = 3,
    silence_limit: float = SILENCE_LIMIT,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> int:
    """Run a command as ranks of one world on this machine until they are done; returns the exit code for the user."""
    _hush_elastic_logs()
    _sweep_folders()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        spec = WorkerSpec(
            role="lockstep",
            local_world_size=ranks,
            entrypoint=command[0],
            args=tuple(command[1:]),
            rdzv_handler=_loopback_rendezvous(),
            max_restarts=0,
            monitor_interval=MONITOR_INTERVAL,
        )
        agent = Agent(spec, Outfit(Path(folder), threads), RestartPolicy(max_restarts), silence_limit, say)
        try:
            return agent.conduct()
        finally:
            spec.rdzv_handler.shutdown()


class LoopbackRendezvous(DynamicRendezvousHandler):
    """PyTorch's rendezvous; the store it offers to the ranks listens on loopback only."""

    def _create_tcp_store_server(self, master_addr: str, master_port: int) -> dist.TCPStore:
        return host_store(loopback_listener(), _STORE_TIMEOUT)


def _loopback_rendezvous() -> LoopbackRendezvous:
    store = host_store(loopback_listener(), _STORE_TIMEOUT)
    name = uuid.uuid4().hex
    backend = C10dRendezvousBackend(store, name)
    return LoopbackRendezvous.from_backend(name, store, backend, 1, 1, local_addr="127.0.0.1")


class Agent(LocalElasticAgent):
    """Starts the ranks, watches them, passes signals on, and does what the policy decides when they have ended."""

    def __init__(
        self,
        spec: WorkerSpec,
        outfit: Outfit,
        policy: RestartPolicy,
        silence_limit: float,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(spec, outfit, exit_barrier_timeout=5, shutdown_timeout=5)
        self._outfit, self._policy, self._silence_limit, self._say = outfit, policy, silence_limit, say
        self._requests: list[int] = []
        self._deadline: float | None = None
        """When the ranks that still run are ended."""
        self._exit_code = 0
        self._begin_attempt()

    def conduct(self) -> int:
        """Run to the end; returns the exit code for the user."""
        with self._listening():
            try:
                self.run()
            except SignalException:
                self._exit_code = INTERRUPTED
        if sys.stdout is not None and sys.stdout.isatty():
            # A rank killed in the middle of its live display leaves the cursor hidden.
            print("\x1b[?25h", end="", flush=True)
        return self._exit_code

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT")]
        before: dict[int, Any] = {}
        # The agent would answer the usual signals by ending the ranks; it is left the one that nobody sends by habit.
        with _variable("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGQUIT"):
            try:
                for number in filter(None, numbers):
                    # Only the main thread may listen; ranks started from another end with it all the same.
                    with contextlib.suppress(ValueError):
                        if signal.getsignal(number) != signal.SIG_IGN:
                            before[number] = signal.signal(number, self._on_signal)
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._requests.append(number)
        self._heed()

    def _heed(self) -> None:
        """Pass the first request on to the ranks, which save and leave; at the second, end them."""
        if len(self._requests) > 1:
            self._deadline = time.monotonic()
            return
        number = self._requests[0]
        if number == signal.SIGINT:
            self._deadline = time.monotonic() + _GRACE[INTERRUPTED]
        # Each rank leads a session of its own, so a terminal's Ctrl-C reaches the launcher alone.
        passed = signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number
        for process in self._processes().values():
            process.send_signal(passed)

    def _processes(self) -> dict[int, subprocess.Popen]:
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        return {rank: handler.proc for rank, handler in self._pcontext.subprocess_handlers.items()}

    def _begin_attempt(self) -> None:
        self._exits: dict[int, Exit] = {}
        self._ended_by_us: set[int] = set()
        self._silent: set[int] = set()
        self._deadline = None
        self._beats: dict[int, int] = {}
        self._quiet: dict[int, float] = {}
        self._looked_at = time.monotonic()

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._begin_attempt()
        started = super()._start_workers(worker_group)
        if self._requests:
            # They came between two attempts, when there was no rank to hear them.
            self._heed()
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        processes = self._processes()
        for rank, process in processes.items():
            if rank not in self._exits and (code := process.poll()) is not None:
                self._note_exit(rank, code)
                _kill_group(process)
        running = {rank: process for rank, process in processes.items() if rank not in self._exits}
        if not running:
            return self._conclude(worker_group)
        self._end_the_silent(running)
        if self._deadline is not None and time.monotonic() > self._deadline:
            for rank, process in running.items():
                self._ended_by_us.add(rank)
                _kill_group(process)
        return RunResult(WorkerState.HEALTHY)

    def _note_exit(self, rank: int, code: int) -> None:
        ended_by_us, silent = rank in self._ended_by_us, rank in self._silent
        self._exits[rank] = self._outfit.exit_of(rank, code, ended_by_launcher=ended_by_us, silent=silent)
        if code and self._deadline is None:
            self._deadline = time.monotonic() + _GRACE.get(code, _CRASH_GRACE)

    def _end_the_silent(self, running: dict[int, subprocess.Popen]) -> None:
        """End ranks whose pulse stopped: stopped processes, and those that never let Python run again."""
        now = time.monotonic()
        # A machine that slept must not count its own absence as theirs.
        passed, self._looked_at = min(now - self._looked_at, 1.0), now
        for rank, process in running.items():
            beats = self._outfit.pulses[rank].read().beats
            # A rank without a first beat is still starting, or is a program that has no pulse.
            answered = beats == 0 or beats != self._beats.get(rank)
            self._beats[rank] = beats
            self._quiet[rank] = 0.0 if answered else self._quiet[rank] + passed
            if self._quiet[rank] > self._silence_limit + _CRASH_GRACE:
                _kill_group(process)
            elif self._quiet[rank] > self._silence_limit and rank not in self._silent:
                self._silent.add(rank)
                # Python's fault handler answers SIGABRT with a stack, without waiting for the interpreter.
                process.send_signal(signal.SIGABRT)
                if hasattr(signal, "SIGCONT"):
                    process.send_signal(signal.SIGCONT)

    def _conclude(self, worker_group: WorkerGroup) -> RunResult:
        decision = self._policy.decide([self._exits[rank] for rank in sorted(self._exits)], self._requests)
        for line in decision.lines:
            self._say(line)
        self._exit_code = decision.exit_code
        if decision.restart and self._waited(decision.wait):
            # The agent counts attempts as what it may do less what it has left; ours is the policy's to limit.
            worker_group.spec.max_restarts += 1
            self._remaining_restarts += 1
            return RunResult(WorkerState.FAILED)
        if any(e.code for e in self._exits.values()):
            return RunResult(WorkerState.FAILED)
        return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(self._exits))

    def _waited(self, seconds: float) -> bool:
        """Wait before a restart; False if a signal asked to stop meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._requests:
            time.sleep(MONITOR_INTERVAL)
        if self._requests:
            self._exit_code = INTERRUPTED if signal.SIGINT in self._requests else StoppedOnRequest.exit_code
        return not self._requests

    def _construct_event(self, state: str, source: EventSource, *_: Any, **__: Any) -> Event:
        # Nobody reads these, and the original looks up the host's full name, which can take a minute without a DNS.
        return Event(f"torchelastic.worker.status.{state}", source=source, metadata={})


def _kill_group(process: subprocess.Popen) -> None:
    """End a rank and whatever it started; harmless where they have ended already."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


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
