"""The launcher's agent: starts the ranks, monitors them, forwards signals, and restarts them after a failure."""

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
from lockstep.launch.heartbeat import EVALUATING, FINISHED, SAVING
from lockstep.launch.heartbeat_monitor import HeartbeatMonitor
from lockstep.launch.rank_setup import RankSetup
from lockstep.launch.rendezvous import Place, Rendezvous
from lockstep.launch.restarts import INTERRUPTED, Decision, RestartPolicy
from lockstep.launch.stop_request import ECHO_SECONDS
from lockstep.output import is_terminal, tell

Process = subprocess.Popen | Child
MONITOR_INTERVAL = 0.1
"""Seconds between two polls of the ranks."""
SILENCE_LIMIT = 120.0
"""Seconds without a beat after which a rank counts as hung."""

# Seconds the other ranks get to exit on their own after the first one exited with this code. Ranks that stop on request
# agreed to do so, but the slowest may still be writing its checkpoint; ranks that finish or fail together may still be
# closing their loggers. After a crash the grace is short: its peers may block in an NCCL collective for ever.
_GRACE = {0: 60.0, StoppedOnRequest.exit_code: 60.0, INTERRUPTED: 30.0, RunFailed.exit_code: 12.0}
_CRASH_GRACE = 2.0
# After another machine is lost, ranks here usually fail on their own once the network reports closed connections.
_LOSS_GRACE = 5.0
# Windows has no such signal, and no exit code that would tell of one.
_KILL = getattr(signal, "SIGKILL", 9)


class _OutOfTouch(Exception):
    """The rendezvous server no longer answers."""


class Agent:
    """Runs this machine's ranks, attempt after attempt, until the restart policy says the run is over."""

    def __init__(
        self,
        command: Sequence[str],
        ranks: int,
        setup: RankSetup,
        policy: RestartPolicy,
        fork_server: ForkServer | None,
        rendezvous: Rendezvous | None,
        patience: float,
        silence_limit: float,
        say: Callable[[str], None],
        noted: Callable[[Decision], None] = lambda decision: None,
    ) -> None:
        """`patience`: seconds to wait for other machines. `noted`: told every decision, besides the user."""
        self._command, self._ranks, self._setup, self._policy = list(command), ranks, setup, policy
        self._fork_server, self._rendezvous, self._patience = fork_server, rendezvous, patience
        self._silence_limit, self._say, self._noted = silence_limit, say, noted
        self._processes: dict[int, Process] = {}
        self._requests: list[int] = []
        """Stop signals received so far; the first asks to save and stop, the second kills."""
        self._requested = 0.0
        self._attempts = 0
        self._deadline: float | None = None
        """When ranks that are still running get killed; None while nothing is wrong."""
        self._exit_code = 0
        """The exit code if no further attempt is possible."""
        self.reason = ""
        """Why the run failed, in one line."""
        self._begin_attempt()

    def run(self) -> int | None:
        """Run until the end; returns the exit code for the user, None if the rendezvous has to be opened again."""
        code: int | None
        with self._listening():
            try:
                code = self._run_attempts()
            except _OutOfTouch:
                code = self._after_lost_touch()
            finally:
                self._end_all()
        if is_terminal(sys.stdout):
            # A rank killed while it drew its live display leaves the cursor hidden: show it again.
            tell("\x1b[?25h", end="")
        return code

    def _run_attempts(self) -> int:
        while True:
            # On several machines this waits for the others, so that all start the same attempt.
            place = self._find_place()
            if isinstance(place, int):
                return place
            self._start(place)
            while running := self._look():
                self._end_the_silent(running)
                self._follow_rendezvous()
                if self._deadline is not None and time.monotonic() > self._deadline and not self._waits_on(running):
                    # Noted first: their SIGKILL must not be reported as a kill from outside.
                    self._ended_by_us.update(running)
                    for process in running.values():
                        _kill_group(process)
                time.sleep(MONITOR_INTERVAL)
            decision = self._conclude()
            # Kept for the case that the next rendezvous fails: then this is the result.
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
                # Python allows signal handlers in the main thread only. From another thread there are none, and the
                # ranks still die with this process.
                with contextlib.suppress(ValueError):
                    # Ignored signals stay ignored: nohup ignores SIGHUP on purpose.
                    if signal.getsignal(number) != signal.SIG_IGN:
                        before[number] = signal.signal(number, self._on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        # Schedulers signal the process and its group, so one request can arrive twice.
        if number in self._requests and now - self._requested < ECHO_SECONDS:
            return
        self._requested = now
        self._requests.append(number)
        self._pass_request_on()

    def _code_of_request(self) -> int:
        return INTERRUPTED if signal.SIGINT in self._requests else StoppedOnRequest.exit_code

    def _pass_request_on(self) -> None:
        """Forward the first stop request to the ranks, which save and exit; kill them on the second."""
        # Only the deadline is set here: this may run inside a signal handler, and the main loop does the killing.
        if len(self._requests) > 1:
            self._deadline = time.monotonic()
            return
        number = self._requests[0]
        if number == signal.SIGINT:
            # Whoever pressed Ctrl-C is waiting at the terminal, so ranks that do not react are killed in the end; long
            # enough for one operation on large tensors and the checkpoint after it.
            self._deadline = time.monotonic() + _GRACE[INTERRUPTED]
        # Each rank runs in its own session, so the terminal's Ctrl-C and SIGHUP reach the launcher only. SIGHUP is
        # forwarded as SIGTERM: both mean save and stop.
        self._signal_ranks(signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number)

    def _waits_on(self, running: dict[int, Process]) -> bool:
        """Whether the deadline of a first Ctrl-C is put off: ranks that evaluate or save get there by themselves.

        Those whose heartbeat stops are ended all the same (see `_end_the_silent`).
        """
        sections = {self._setup.heartbeats[rank].read().section for rank in running}
        # After a crash the others wait in vain for that rank.
        crashed = any(found.code not in (0, INTERRUPTED) for found in self._exits.values())
        if self._requests != [signal.SIGINT] or crashed or not sections & {EVALUATING, SAVING}:
            return False
        self._deadline = time.monotonic() + _GRACE[INTERRUPTED]
        self._say("still evaluating or saving: the run stops after that; Ctrl-C again stops it at once without saving")
        return True

    def _signal_ranks(self, number: int) -> None:
        for process in list(self._processes.values()):
            _send(process, number)

    def _begin_attempt(self) -> None:
        self._exits: dict[int, Exit] = {}
        self._ended_by_us: set[int] = set()
        self._silent: set[int] = set()
        self._deadline = None
        self._missing = 0
        self._makes_room = False
        self._monitor = HeartbeatMonitor()

    def _find_place(self) -> Place | int:
        """This machine's place in the next attempt, or the exit code if there will be none."""
        if self._rendezvous is None:
            return Place(self._attempts, 0, self._ranks)
        try:
            place = self._rendezvous.join(self._policy.halvings, self._patience, lambda: bool(self._requests))
        except TimeoutError:
            self._say("too few machines joined in time; the same command continues from the newest checkpoint")
            return self._exit_code or RunFailed.exit_code
        except ConnectionError as error:
            raise _OutOfTouch from error
        # All machines must use the same micro-batches. Each sent its own count when it joined, so the maximum is final.
        self._policy.halvings = self._rendezvous.halvings()
        if place is not None:
            return place
        outcome = self._rendezvous.outcome()
        # `join` returned None because of a request to this launcher, or because the run has ended elsewhere.
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
            # The request arrived between two attempts, when there was no rank to forward it to.
            self._pass_request_on()

    def _start_rank(self, rank: int) -> Process:
        variables, output = self._setup.variables(rank), self._setup.output(rank)
        forked = self._fork_server.fork(variables, output.stdout, output.stderr) if self._fork_server else None
        if forked is not None:
            return forked
        # No fork server, or it is gone: start a new interpreter, which takes seconds longer.
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(path.open("ab")) if path is not None else None
                for path in (output.stdout, output.stderr)
            ]
            return subprocess.Popen(
                self._command,
                env=variables,
                # Several ranks reading one terminal would steal each other's input.
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
            )

    def _look(self) -> dict[int, Process]:
        """Record ranks that exited since the last call; returns those still running."""
        for rank, process in self._processes.items():
            if rank not in self._exits and (code := process.poll()) is not None:
                self._note_exit(rank, code)
                # Its own children (environment workers) must not outlive it.
                _kill_group(process)
        return {rank: process for rank, process in self._processes.items() if rank not in self._exits}

    def _note_exit(self, rank: int, code: int) -> None:
        ended_by_us, silent = rank in self._ended_by_us, rank in self._silent
        # The kernel's out-of-memory killer uses SIGKILL, like anybody else; only its counter tells the difference.
        for_memory = code == -_KILL and not ended_by_us and self._monitor.memory_ran_out()
        found = self._setup.exit_of(
            rank, code, ended_by_launcher=ended_by_us, silent=silent, killed_for_memory=for_memory
        )
        self._exits[rank] = found
        if self._deadline is None:
            # A rank that reported steps but never FINISHED abandoned its peers, even if its exit code is 0.
            left_early = code == 0 and found.reading.step >= 0 and found.reading.section != FINISHED
            self._deadline = time.monotonic() + (_CRASH_GRACE if left_early else _GRACE.get(code, _CRASH_GRACE))

    def _end_the_silent(self, running: dict[int, Process]) -> None:
        """Kill ranks whose heartbeat stopped: suspended processes, and native code that never releases the GIL."""
        for rank, quiet in self._monitor.seconds_silent(self._setup.heartbeats, running).items():
            # Second stage: SIGABRT below did not end it in time.
            if quiet > self._silence_limit + _CRASH_GRACE:
                _kill_group(running[rank])
            elif quiet > self._silence_limit and rank not in self._silent:
                self._silent.add(rank)
                # faulthandler dumps the Python stack on SIGABRT even if the GIL is held.
                _send(running[rank], signal.SIGABRT)
                # A process suspended by SIGSTOP handles SIGABRT only once it is continued.
                if hasattr(signal, "SIGCONT"):
                    _send(running[rank], signal.SIGCONT)

    def _follow_rendezvous(self) -> None:
        """Have the ranks save when a machine wants to join; end them when a machine or the server is lost."""
        if self._rendezvous is None:
            return
        if self._rendezvous.out_of_touch():
            raise _OutOfTouch
        # Once a deadline is set this attempt is ending anyway, and other machines leave the round because of that.
        if not self._missing and self._deadline is None and (missing := self._rendezvous.missing()):
            self._missing = missing
            self._deadline = time.monotonic() + _LOSS_GRACE
        # A rank that has not reported a step yet has no signal handler either: SIGUSR1 would kill it.
        started = all(heartbeat.read().step >= 0 for heartbeat in self._setup.heartbeats.values())
        if self._rendezvous.newcomers() and started and not self._makes_room and not self._missing:
            self._makes_room = True
            # Ranks agree on the request, save and exit; the next round then includes the newcomer.
            self._signal_ranks(getattr(signal, "SIGUSR1", signal.SIGTERM))

    def _conclude(self) -> Decision:
        exits = [self._exits[rank] for rank in sorted(self._exits)]
        regroups = self._rendezvous is not None
        decision = self._policy.decide(exits, self._requests, regroups=regroups, missing=self._missing)
        self._tell(decision)
        return decision

    def _after_lost_touch(self) -> int | None:
        """Decide what to do without the rendezvous server; None = open the rendezvous again."""
        assert self._rendezvous is not None
        self._end_all()
        furthest = max((heartbeat.read().step for heartbeat in self._setup.heartbeats.values()), default=-1)
        decision = self._policy.out_of_touch(furthest, self._rendezvous.machines.endpoint)
        self._tell(decision)
        if decision.restart and self._waited(decision.wait):
            return None
        return decision.exit_code or self._code_of_request()

    def _end_all(self) -> None:
        """Kill ranks that are still running, for example when an exception ended the launcher's own loop."""
        for process in self._processes.values():
            if process.poll() is None:
                _kill_group(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_CRASH_GRACE)

    def _tell(self, decision: Decision) -> None:
        self.reason = decision.reason
        for line in decision.lines:
            self._say(line)
        self._noted(decision)

    def _waited(self, seconds: float) -> bool:
        """Wait before a restart; False if a stop request arrived meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._requests:
            time.sleep(MONITOR_INTERVAL)
        return not self._requests


def _send(process: Process, number: int) -> None:
    """Send a signal to a rank, where the system has it."""
    # Windows sends SIGTERM alone. Ctrl-C reaches the ranks from the console by itself, and a silent one is killed.
    with contextlib.suppress(ValueError):
        process.send_signal(number)


def _kill_group(process: Process) -> None:
    """Kill a rank and all its children; harmless if they have exited already."""
    if hasattr(os, "killpg"):
        # Every rank leads its own session, so its process id is also its process group id.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, _KILL)
    else:
        process.kill()
