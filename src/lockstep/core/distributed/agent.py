"""The launcher's side of a run: PyTorch's elastic agent, taught our exit codes, and patience with ranks that save."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.events import Event, EventSource
from torch.distributed.elastic.multiprocessing import SignalException, SubprocessContext
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousTimeoutError,
)

from lockstep.core.distributed.failures import Exit
from lockstep.core.distributed.nursery import Child, Nursery, forking
from lockstep.core.distributed.outfit import Outfit
from lockstep.core.distributed.rendezvous import Meeting
from lockstep.core.distributed.restarts import INTERRUPTED, Decision, RestartPolicy
from lockstep.core.distributed.vigil import Vigil
from lockstep.core.errors import RunFailed, StoppedOnRequest
from lockstep.core.stop_request import ECHO_SECONDS

Process = subprocess.Popen | Child
MONITOR_INTERVAL = 0.1
SILENCE_LIMIT = 120.0
"""Seconds without a beat after which a rank counts as hung."""

# Seconds for the other ranks to end by themselves once one has ended with this code. Those that stop on request have
# agreed on it, and the slowest may still be writing the checkpoint; those that fail together may still be closing
# their loggers; nobody waits for the peers of a crashed one.
_GRACE = {StoppedOnRequest.exit_code: 60.0, INTERRUPTED: 5.0, RunFailed.exit_code: 12.0}
_CRASH_GRACE = 2.0
# Ranks whose machine has lost another end by themselves, if the network tells them.
_LOSS_GRACE = 5.0


class Agent(LocalElasticAgent):
    """Starts the ranks, watches them, passes signals on, and does what the policy decides when they have ended."""

    def __init__(
        self,
        spec: WorkerSpec,
        outfit: Outfit,
        policy: RestartPolicy,
        nursery: Nursery | None,
        silence_limit: float,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(spec, outfit, exit_barrier_timeout=5, shutdown_timeout=5)
        assert isinstance(spec.rdzv_handler, Meeting)
        self._meeting = spec.rdzv_handler
        self._outfit, self._policy, self._silence_limit, self._say = outfit, policy, silence_limit, say
        self._nursery = nursery
        self._requests: list[int] = []
        self._requested = 0.0
        self._deadline: float | None = None
        """When the ranks that still run are ended."""
        self._exit_code: int | None = 0
        self._meets = False
        self._begin_attempt()

    def conduct(self) -> int | None:
        """Run to the end; returns the exit code for the user, None where the place of meeting was lost."""
        with self._listening():
            try:
                self.run()
            except SignalException:
                self._exit_code = self._code_of_request()
            except RendezvousClosedError:
                self._exit_code = self._meeting.outcome()
                self._say("the run was ended on another machine, whose launcher says why")
            except RendezvousTimeoutError:
                self._say("too few machines came to go on; the same command goes on from the newest checkpoint")
                self._exit_code = self._exit_code or RunFailed.exit_code
            except (RendezvousError, DistError):
                self._lose_touch()
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
        now = time.monotonic()
        if number in self._requests and now - self._requested < ECHO_SECONDS:
            return
        self._requested = now
        self._requests.append(number)
        if self._meets and self._meeting.machines is not None:
            # No rank runs, and the other machines may not come for a long time.
            raise SignalException("asked to stop while waiting for other machines", signal.Signals(number))
        self._heed()

    def _code_of_request(self) -> int:
        return INTERRUPTED if signal.SIGINT in self._requests else StoppedOnRequest.exit_code

    def _heed(self) -> None:
        """Pass the first request on to the ranks, which save and leave; at the second, end them."""
        if len(self._requests) > 1:
            self._deadline = time.monotonic()
            return
        number = self._requests[0]
        if number == signal.SIGINT:
            self._deadline = time.monotonic() + _GRACE[INTERRUPTED]
        # Each rank leads a session of its own, so a terminal's Ctrl-C reaches the launcher alone.
        self._signal_ranks(signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number)

    def _signal_ranks(self, number: int) -> None:
        for process in self._processes().values():
            process.send_signal(number)

    def _processes(self) -> dict[int, Process]:
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        return {rank: handler.proc for rank, handler in self._pcontext.subprocess_handlers.items()}

    def _begin_attempt(self) -> None:
        self._exits: dict[int, Exit] = {}
        self._ended_by_us: set[int] = set()
        self._silent: set[int] = set()
        self._deadline = None
        self._missing = 0
        self._makes_room = False
        self._vigil = Vigil()

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self._meets = True
        super()._rendezvous(worker_group)
        # What one machine has learned holds for all: each told it before it came to the meeting.
        self._policy.halvings = self._meeting.share_largest("halvings", self._policy.halvings)
        self._meets = False

    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        self._meeting.share_largest("halvings", self._policy.halvings)
        super()._initialize_workers(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._begin_attempt()
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        self._outfit.renew(ranks, self._meeting, self._policy.halvings)
        with forking(self._nursery):
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
        self._heed_the_meeting()
        if self._deadline is not None and time.monotonic() > self._deadline:
            for rank, process in running.items():
                self._ended_by_us.add(rank)
                _kill_group(process)
        return RunResult(WorkerState.HEALTHY)

    def _note_exit(self, rank: int, code: int) -> None:
        ended_by_us, silent = rank in self._ended_by_us, rank in self._silent
        for_memory = code == -signal.SIGKILL and not ended_by_us and self._vigil.memory_ran_out()
        self._exits[rank] = self._outfit.exit_of(
            rank, code, ended_by_launcher=ended_by_us, silent=silent, killed_for_memory=for_memory
        )
        if code and self._deadline is None:
            self._deadline = time.monotonic() + _GRACE.get(code, _CRASH_GRACE)

    def _end_the_silent(self, running: dict[int, Process]) -> None:
        """End ranks whose pulse stopped: stopped processes, and those that never let Python run again."""
        for rank, quiet in self._vigil.look(self._outfit.pulses, running).items():
            if quiet > self._silence_limit + _CRASH_GRACE:
                _kill_group(running[rank])
            elif quiet > self._silence_limit and rank not in self._silent:
                self._silent.add(rank)
                # Python's fault handler answers SIGABRT with a stack, without waiting for the interpreter.
                running[rank].send_signal(signal.SIGABRT)
                if hasattr(signal, "SIGCONT"):
                    running[rank].send_signal(signal.SIGCONT)

    def _heed_the_meeting(self) -> None:
        """Let the ranks save when a machine comes; end them when one is lost, or the place of meeting."""
        if self._meeting.out_of_touch():
            raise RendezvousError("the place of meeting does not answer")
        if not self._missing and self._deadline is None and (missing := self._meeting.missing()):
            self._missing = missing
            self._deadline = time.monotonic() + _LOSS_GRACE
        # A rank that has not told a step yet does not listen for signals either.
        started = all(pulse.read().step >= 0 for pulse in self._outfit.pulses.values())
        if self._meeting.newcomers() and started and not self._makes_room and not self._missing:
            self._makes_room = True
            self._signal_ranks(signal.SIGUSR1)

    def _conclude(self, worker_group: WorkerGroup) -> RunResult:
        exits = [self._exits[rank] for rank in sorted(self._exits)]
        regroups = self._meeting.machines is not None
        decision = self._policy.decide(exits, self._requests, regroups=regroups, missing=self._missing)
        self._tell(decision)
        self._exit_code = decision.exit_code
        if decision.restart and self._waited(decision.wait):
            # The agent counts attempts as what it may do less what it has left; ours is the policy's to limit.
            worker_group.spec.max_restarts += 1
            self._remaining_restarts += 1
            return RunResult(WorkerState.FAILED)
        if any(e.code for e in exits):
            return RunResult(WorkerState.FAILED)
        return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(e.rank for e in exits))

    def _lose_touch(self) -> None:
        """Decide what to do without the place of meeting; the ranks have been ended by now."""
        endpoint = self._meeting.machines.endpoint if self._meeting.machines else "the launcher's store"
        furthest = max((pulse.read().step for pulse in self._outfit.pulses.values()), default=-1)
        decision = self._policy.out_of_touch(furthest, endpoint)
        self._tell(decision)
        again = decision.restart and self._waited(decision.wait)
        self._exit_code = None if again else decision.exit_code or self._code_of_request()

    def _tell(self, decision: Decision) -> None:
        for line in decision.lines:
            self._say(line)

    def _waited(self, seconds: float) -> bool:
        """Wait before a restart; False if a signal asked to stop meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._requests:
            time.sleep(MONITOR_INTERVAL)
        if self._requests:
            self._exit_code = self._code_of_request()
        return not self._requests

    def _construct_event(self, state: str, source: EventSource, *_: Any, **__: Any) -> Event:
        # Nobody reads these, and the original looks up the host's full name, which can take a minute without a DNS.
        return Event(f"torchelastic.worker.status.{state}", source=source, metadata={})


def _kill_group(process: Process) -> None:
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
