"""The launcher's agent: starts the ranks, watches them, passes signals on, and starts them again after a failure."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from lockstep.errors import RunFailed, StoppedOnRequest
from lockstep.launch.failures import Exit
from lockstep.launch.fork_server import Child, ForkServer
from lockstep.launch.heartbeat import FINISHED
from lockstep.launch.heartbeat_monitor import HeartbeatMonitor
from lockstep.launch.meeting import Meeting, Place
from lockstep.launch.rank_setup import RankSetup
from lockstep.launch.restarts import INTERRUPTED, Decision, RestartPolicy
from lockstep.launch.stop_request import ECHO_SECONDS
from lockstep.output import is_terminal, tell

Process = subprocess.Popen | Child
MONITOR_INTERVAL = 0.1
SILENCE_LIMIT = 120.0
"""Seconds without a beat after which a rank counts as hung."""

# Seconds for the other ranks to end by themselves once one has ended with this code. Those that stop on request have
# agreed on it, and the slowest may still be writing the checkpoint; those that fail together, or finish, may still be
# closing their loggers; nobody waits for the peers of a crashed one, who may be waiting for it in NCCL without end.
_GRACE = {0: 60.0, StoppedOnRequest.exit_code: 60.0, INTERRUPTED: 5.0, RunFailed.exit_code: 12.0}
_CRASH_GRACE = 2.0
# Ranks whose machine has lost another end by themselves, if the network tells them.
_LOSS_GRACE = 5.0


class _OutOfTouch(Exception):
    """The meeting point of several machines no longer answers."""


class Agent:
    """Runs this machine's ranks of one world, attempt after attempt, until the policy has decided how it ends."""

    def __init__(
        self,
        command: Sequence[str],
        ranks: int,
        setup: RankSetup,
        policy: RestartPolicy,
        fork_server: ForkServer | None,
        meeting: Meeting | None,
        patience: float,
        silence_limit: float,
        say: Callable[[str], None],
    ) -> None:
        """`patience`: seconds to wait for other machines."""
        self._command, self._ranks, self._setup, self._policy = list(command), ranks, setup, policy
        self._fork_server, self._meeting, self._patience = fork_server, meeting, patience
        self._silence_limit, self._say = silence_limit, say
        self._processes: dict[int, Process] = {}
        self._requests: list[int] = []
        self._requested = 0.0
        self._attempts = 0
        self._deadline: float | None = None
        """When the ranks that still run are ended."""
        self._exit_code = 0
        """What the command would end with if no further attempt can be made."""
        self._begin_attempt()

    def conduct(self) -> int | None:
        """Run to the end; returns the exit code for the user, None where the meeting point was lost."""
        code: int | None
        with self._listening():
            try:
                code = self._run()
            except _OutOfTouch:
                code = self._after_lost_touch()
            finally:
                self._end_all()
        if is_terminal(sys.stdout):
            # A rank killed in the middle of its live display leaves the cursor hidden.
            tell("\x1b[?25h", end="")
        return code

    def _run(self) -> int:
        while True:
            place = self._find_place()
            if isinstance(place, int):
                return place
            self._start(place)
            while running := self._look():
                self._end_the_silent(running)
                self._follow_the_meeting()
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self._ended_by_us.update(running)
                    for process in running.values():
                        _kill_group(process)
                time.sleep(MONITOR_INTERVAL)
            decision = self._conclude()
            self._exit_code = decision.exit_code
            if not decision.restart:
                return decision.exit_code
            if not self._waited(decision.wait):
                return self._code_of_request()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT")]
        before: dict[int, Any] = {}
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
        self._pass_request_on()

    def _code_of_request(self) -> int:
        return INTERRUPTED if signal.SIGINT in self._requests else StoppedOnRequest.exit_code

    def _pass_request_on(self) -> None:
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
        for process in list(self._processes.values()):
            process.send_signal(number)

    def _begin_attempt(self) -> None:
        self._exits: dict[int, Exit] = {}
        self._ended_by_us: set[int] = set()
        self._silent: set[int] = set()
        self._deadline = None
        self._missing = 0
        self._makes_room = False
        self._monitor = HeartbeatMonitor()

    def _find_place(self) -> Place | int:
        """This machine's place in the next attempt, or the exit code where there is none."""
        if self._meeting is None:
            return Place(self._attempts, 0, self._ranks)
        try:
            place = self._meeting.join(self._policy.halvings, self._patience, lambda: bool(self._requests))
        except TimeoutError:
            self._say("too few machines came to go on; the same command goes on from the newest checkpoint")
            return self._exit_code or RunFailed.exit_code
        except ConnectionError as error:
            raise _OutOfTouch from error
        # What one machine has learned holds for all: each told it before it came to the meeting.
        self._policy.halvings = self._meeting.halvings()
        if place is not None:
            return place
        outcome = self._meeting.outcome()
        if self._requests or outcome is None:
            return self._code_of_request()
        self._say("the run was ended on another machine, whose launcher says why")
        return outcome

    def _start(self, place: Place) -> None:
        self._begin_attempt()
        self._setup.renew(place, self._attempts, self._policy.halvings)
        self._attempts += 1
        self._processes = {}
        for rank in range(self._ranks):
            self._processes[rank] = self._start_rank(rank)
        if self._requests:
            # They came between two attempts, when there was no rank to hear them.
            self._pass_request_on()

    def _start_rank(self, rank: int) -> Process:
        variables, output = self._setup.variables(rank), self._setup.output(rank)
        forked = self._fork_server.fork(variables, output.stdout, output.stderr) if self._fork_server else None
        if forked is not None:
            return forked
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(path.open("ab")) if path is not None else None
                for path in (output.stdout, output.stderr)
            ]
            return subprocess.Popen(
                self._command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
            )

    def _look(self) -> dict[int, Process]:
        """Note who has ended since; returns who runs."""
        for rank, process in self._processes.items():
            if rank not in self._exits and (code := process.poll()) is not None:
                self._note_exit(rank, code)
                _kill_group(process)
        return {rank: process for rank, process in self._processes.items() if rank not in self._exits}

    def _note_exit(self, rank: int, code: int) -> None:
        ended_by_us, silent = rank in self._ended_by_us, rank in self._silent
        for_memory = code == -signal.SIGKILL and not ended_by_us and self._monitor.memory_ran_out()
        found = self._setup.exit_of(
            rank, code, ended_by_launcher=ended_by_us, silent=silent, killed_for_memory=for_memory
        )
        self._exits[rank] = found
        if self._deadline is None:
            # A rank that trained and says nothing of an end has left the others alone, whatever its exit code.
            left_early = code == 0 and found.reading.step >= 0 and found.reading.section != FINISHED
            self._deadline = time.monotonic() + (_CRASH_GRACE if left_early else _GRACE.get(code, _CRASH_GRACE))

    def _end_the_silent(self, running: dict[int, Process]) -> None:
        """End ranks whose heartbeat stopped: stopped processes, and those that never let Python run again."""
        for rank, quiet in self._monitor.look(self._setup.heartbeats, running).items():
            if quiet > self._silence_limit + _CRASH_GRACE:
                _kill_group(running[rank])
            elif quiet > self._silence_limit and rank not in self._silent:
                self._silent.add(rank)
                # Python's fault handler answers SIGABRT with a stack, without waiting for the interpreter.
                running[rank].send_signal(signal.SIGABRT)
                if hasattr(signal, "SIGCONT"):
                    running[rank].send_signal(signal.SIGCONT)

    def _follow_the_meeting(self) -> None:
        """Let the ranks save when a machine comes; end them when one is lost, or the meeting point."""
        if self._meeting is None:
            return
        if self._meeting.out_of_touch():
            raise _OutOfTouch
        if not self._missing and self._deadline is None and (missing := self._meeting.missing()):
            self._missing = missing
            self._deadline = time.monotonic() + _LOSS_GRACE
        # A rank that has not told a step yet does not listen for signals either.
        started = all(heartbeat.read().step >= 0 for heartbeat in self._setup.heartbeats.values())
        if self._meeting.newcomers() and started and not self._makes_room and not self._missing:
            self._makes_room = True
            self._signal_ranks(signal.SIGUSR1)

    def _conclude(self) -> Decision:
        exits = [self._exits[rank] for rank in sorted(self._exits)]
        regroups = self._meeting is not None
        decision = self._policy.decide(exits, self._requests, regroups=regroups, missing=self._missing)
        self._tell(decision)
        return decision

    def _after_lost_touch(self) -> int | None:
        """Decide what to do without the meeting point; None = look for it again."""
        assert self._meeting is not None
        self._end_all()
        furthest = max((heartbeat.read().step for heartbeat in self._setup.heartbeats.values()), default=-1)
        decision = self._policy.out_of_touch(furthest, self._meeting.machines.endpoint)
        self._tell(decision)
        if decision.restart and self._waited(decision.wait):
            return None
        return decision.exit_code or self._code_of_request()

    def _end_all(self) -> None:
        """End what still runs, as when the launcher itself is interrupted by an exception."""
        for process in self._processes.values():
            if process.poll() is None:
                _kill_group(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_CRASH_GRACE)

    def _tell(self, decision: Decision) -> None:
        for line in decision.lines:
            self._say(line)

    def _waited(self, seconds: float) -> bool:
        """Wait before a restart; False if a signal asked to stop meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._requests:
            time.sleep(MONITOR_INTERVAL)
        return not self._requests


def _kill_group(process: Process) -> None:
    """End a rank and whatever it started; harmless where they have ended already."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
