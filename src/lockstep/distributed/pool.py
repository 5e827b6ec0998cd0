"""A pool of live ranks for verify, bench and tests: started once, then called with one function after another."""

import contextlib
import inspect
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError
from lockstep.launch import heartbeat, rank_process, resources
from lockstep.launch.failures import TAIL_LINES, Exit, cause, last_output, reason, with_nccl_log
from lockstep.launch.secret import VARIABLE as SECRET
from lockstep.launch.secret import own_secret

# By name: importing pool_rank would import torch.
IN_STEP = "lockstep.distributed.pool_rank:in_step"

# Seconds the other ranks have to finish or fail once a function has raised on one of them.
_GRACE = 3.0
# Variables a launcher may have set for this process; they do not apply to the ranks of a pool.
_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")

Answer = dict[str, Any]


class RankError(LockstepError):
    """A function raised on a rank of a pool, or the rank died; the traceback is the error's note and details."""

    def __init__(self, rank: int, kind: str, message: str, trace: str) -> None:
        """`kind`: the exception's class; empty if the process died, and `message` is then the complete line."""
        why = reason(f"{kind}: {message}") if "\n" in message else f"{kind}: {message}"
        super().__init__(f"rank {rank}: {why}" if kind else message)
        self.rank, self.kind, self.message, self.trace = rank, kind, message, trace
        # Lockstep's own errors are complete in one line; a traceback would only distract.
        if kind not in {error.__name__ for error in LockstepError.__subclasses__()}:
            self.details = Exit(rank, 1, trace).last_lines()
        self.add_note(trace)


class RankPool:
    """Processes that form one world and run functions of the form f(world, ...), until closed.

    Arguments and results travel as JSON and functions by name, so a function must be defined at the top of a module or
    file. If a rank dies or does not answer in time, the call fails, and the next one starts new ranks.
    """

    def __init__(self, size: int, device: str = "cpu", threads: int = 1) -> None:
        self.size = size
        self._device, self._threads = device, threads
        self._folder: tempfile.TemporaryDirectory | None = None
        """Holds the ranks' store and logs; only this user can open it."""
        self._members: list[_Member] = []
        self._answers: queue.Queue[tuple[int, Answer | None]] = queue.Queue()

    def run(
        self,
        function: str | Callable[..., Any],
        *args: Any,
        ranks: int | None = None,
        timeout: float = 120.0,
        **kwargs: Any,
    ) -> list[Any]:
        """Call `function(world, *args, **kwargs)` on the first `ranks` ranks; returns their results in rank order.

        function: "package.module:name", or a function defined at the top of a module or file.
        """
        count = self.size if ranks is None else ranks
        assert 1 <= count <= self.size, f"{count} ranks of a pool of {self.size}"
        # A world cannot replace a single rank, so one dead rank means that all are started again.
        if any(member.process.poll() is not None for member in self._members):
            self.close()
        self._start()
        answers = self._ask(address(function), args, kwargs, count, timeout)
        errors = [answer for answer in answers.values() if "kind" in answer]
        if errors:
            self._recover(answers, count)
            raise _first_cause(errors)
        return [answers[rank]["result"] for rank in range(count)]

    def close(self) -> None:
        """Kill all ranks and remove their files."""
        for member in self._members:
            member.end()
        self._members = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> "RankPool":
        """Start the ranks."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the ranks."""
        self.close()

    def _start(self, timeout: float = 180.0) -> None:
        if self._members:
            return
        # A new queue: threads of the previous ranks may still put their end into the old one.
        self._answers = queue.Queue()
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-pool-", ignore_cleanup_errors=True)
        store = str(Path(self._folder.name) / "store")
        setup = [str(os.getpid()), str(self.size), self._device, str(self._threads), store]
        environment = self._environment()
        folder = Path(self._folder.name)
        self._members = [_Member(rank, folder, setup, environment, self._answers) for rank in range(self.size)]
        errors = [answer for answer in self._collect(timeout).values() if "kind" in answer]
        if errors:
            self.close()
            raise _first_cause(errors)

    def _environment(self) -> dict[str, str]:
        dropped = (
            *_LAUNCHER_VARIABLES,
            rank_process.LAUNCHER_VARIABLE,
            rank_process.ERROR_FILE_VARIABLE,
            heartbeat.VARIABLE,
        )
        environment = resources.KEPT_MEMORY | {name: value for name, value in os.environ.items() if name not in dropped}
        environment |= {"LOCAL_WORLD_SIZE": str(self.size), "OMP_NUM_THREADS": str(self._threads)}
        # The ranks authenticate each other, as in a real run.
        environment[SECRET] = own_secret()
        if Path("/sys/class/net/lo").exists():
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        return environment

    def _ask(self, function: dict[str, str], args: Any, kwargs: Any, count: int, timeout: float) -> dict[int, Answer]:
        # All ranks get the order, also those beyond `count`: creating the smaller world is collective.
        order = json.dumps({"function": function, "args": args, "kwargs": kwargs, "ranks": count})
        for member in self._members:
            member.send(order)
        return self._collect(timeout)

    def _collect(self, timeout: float) -> dict[int, Answer]:
        """Every rank's answer; after an error, the answers that arrive within the grace period."""
        answers: dict[int, Answer] = {}
        deadline = time.monotonic() + timeout
        raised = False
        while len(answers) < self.size:
            try:
                rank, answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                # After an error, missing answers are expected: those ranks wait for the one that raised.
                if raised:
                    break
                self.close()
                missing = ", ".join(str(rank) for rank in range(self.size) if rank not in answers)
                raise TimeoutError(f"no answer from rank(s) {missing} within {timeout:g} s; killed all ranks") from None
            answers[rank] = self._members[rank].death_report() if answer is None else answer
            if answer is not None and "kind" in answer:
                answer["trace"] = with_nccl_log(self._members[rank].error_file, answer["trace"])
            if "kind" in answers[rank] and not raised:
                raised = True
                deadline = min(deadline, time.monotonic() + _GRACE)
        return answers

    def _recover(self, answers: dict[int, Answer], count: int) -> None:
        """Keep the ranks if they have issued the same collectives; else the next call starts new ones."""
        alive = all(member.process.poll() is None for member in self._members)
        if len(answers) == self.size and alive:
            # A rank that raised in the middle of a collective has issued fewer than its peers, and would pair up its
            # next one with the wrong one of theirs.
            checks = self._ask(address(IN_STEP), (), {}, count, 10 * _GRACE)
            if len(checks) == self.size and not any("kind" in check for check in checks.values()):
                return
        self.close()


class _Member:
    """One process of a pool, as its parent sees it."""

    def __init__(
        self, rank: int, folder: Path, setup: list[str], environment: dict[str, str], answers: queue.Queue
    ) -> None:
        self.rank = rank
        self.error_file, self._log = folder / f"error-{rank}", folder / f"stderr-{rank}"
        command = [sys.executable, "-m", "lockstep.distributed.pool_rank", str(rank), *setup]
        # With these two variables set, NCCL writes its warnings to a file beside the error file (nccl._log_file).
        own = {rank_process.ERROR_FILE_VARIABLE: str(self.error_file), rank_process.LAUNCHER_VARIABLE: str(os.getpid())}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env={**environment, **own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        threading.Thread(target=self._listen, args=(answers,), name=f"pool-{rank}", daemon=True).start()

    def _listen(self, answers: queue.Queue) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self.rank, json.loads(line)))
        # The end of the stream: the process has died, or was closed.
        answers.put((self.rank, None))

    def send(self, order: str) -> None:
        """Send the rank an order; if it has just died, `_listen` reports that."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(order.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # `_listen` has put, or will put, the end of the stream into the queue.

    def death_report(self) -> Answer:
        """An error answer on behalf of a rank that died."""
        code = self.process.wait()
        output, _ = last_output(self.error_file, self._log)
        trace = "\n".join(output.splitlines()[-TAIL_LINES:])
        message = Exit(self.rank, code, trace).sentence()
        return {"kind": "", "message": message, "trace": trace, "time": time.time(), "rank": self.rank, "code": code}

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()


def _first_cause(errors: Sequence[Answer]) -> RankError:
    """The root cause; the other errors are usually ranks that lost this peer."""
    exits = [Exit(error["rank"], error.get("code", 1), error["trace"], error["time"]) for error in errors]
    found = errors[exits.index(cause(exits))]
    return RankError(found["rank"], found["kind"], found["message"], found["trace"])


def address(function: str | Callable[..., Any]) -> dict[str, str]:
    """How a rank finds a function: by module within this package, by file elsewhere (tests are no package)."""
    if isinstance(function, str):
        module, _, name = function.partition(":")
        return {"module": module, "name": name}
    name = function.__qualname__
    if not name.isidentifier():
        raise ValueError(f"{name}: ranks find a function by name, so it must be defined at the top of its file")
    if function.__module__.partition(".")[0] == "lockstep":
        return {"module": function.__module__, "name": name}
    return {"file": str(Path(inspect.getfile(function)).resolve()), "name": name}
