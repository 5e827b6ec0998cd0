"""Worker processes that run environments for this process. Needs no torch.

A pool is started once and kept: an evaluation uses the workers that training has started. A worker that dies, fails or
stops answering ends the run with a one-line error. No worker can outlive this process (see worker.py).
"""

import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.envs import worker
from lockstep.envs.hosting import Simulators, Table, packed, unpacked
from lockstep.envs.simulation import Floats, State
from lockstep.errors import RunFailed
from lockstep.launch import given

PATIENCE = 10.0
"""Seconds after the time limit of an environment's own call until its worker is considered hung."""


_THEN = "`lockstep resume` continues from the newest checkpoint"


class Worker:
    """One worker process, as seen by its owner."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        # The worker imports the same lockstep as this process, even if it is not installed.
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # One thread each: the workers themselves are the parallelism.
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.retired: list[int] = []
        """Groups to close with the next request, because their `RemoteHost` has been collected."""
        self.runs = "environments"
        """What it runs, for error messages."""
        self.patience = PATIENCE
        """Seconds to wait for an answer."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, operation: bytes, group: int, payload: bytes = b"") -> None:
        """Send a request; call `answer` before sending the next one."""
        while self.retired:
            self._write(worker.REQUEST.pack(worker.CLOSE, self.retired.pop(), 0))
        self._write(worker.REQUEST.pack(operation, group, len(payload)) + payload)

    def answer(self) -> bytes:
        """Wait for the answer to the last request; RunFailed if it failed or the worker is lost."""
        succeeded, size = worker.ANSWER.unpack(self._read(worker.ANSWER.size))
        payload = self._read(size)
        if not succeeded:
            raise RunFailed(payload.decode())
        return payload

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()

    def _write(self, message: bytes) -> None:
        rest = memoryview(message)
        try:
            while rest:
                rest = rest[os.write(self._to, rest) :]
        except BrokenPipeError as error:
            raise self._dead() from error

    def _answers_in_time(self) -> bool:
        # On Windows select takes sockets only. There a worker that hangs is waited for; one that died ends the pipe.
        return sys.platform == "win32" or bool(select.select([self._from], [], [], self.patience)[0])

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            if not self._answers_in_time():
                self._process.kill()
                raise RunFailed(f"{self.runs}: worker {self.pid} did not answer for {self.patience:.0f} s; {_THEN}")
            part = os.read(self._from, size)
            if not part:
                raise self._dead()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _dead(self) -> RunFailed:
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunFailed(f"{self.runs}: worker {self.pid} {how}; it may have run out of memory; {_THEN}")


class WorkerPool:
    """Workers among which environments are divided."""

    def __init__(self, pictures: bool = False, **variables: str) -> None:
        """`pictures`: environments can `render`. `variables`: additional environment variables of the workers."""
        self.workers: list[Worker] = []
        self.pictures = pictures
        self._variables = variables
        self._groups = count()

    def host(self, size: int, simulators: Simulators) -> "RemoteHost":
        """Open simulations, divided among `size` workers; starts workers that are missing."""
        while len(self.workers) < size:
            self.workers.append(Worker(self._variables))
        return RemoteHost(self, self.workers[:size], next(self._groups), simulators)

    def disband(self) -> None:
        """Kill all workers; the next `host` starts new ones."""
        for process in self.workers:
            process.end()
        self.workers.clear()


def shared_pool() -> WorkerPool:
    """The pool that all environments of this process share, apart from rendered ones."""
    return _pool(given.times())


@lru_cache(maxsize=1)
def _pool(_: int) -> WorkerPool:
    # Anew when an object is given: running workers read the objects once, so they would use what is out of date. Those
    # of the pool before end with the last environments that use it.
    return WorkerPool()


class RemoteHost:
    """The same as `hosting.Host`, with the simulations divided among workers."""

    def __init__(self, pool: WorkerPool, workers: list[Worker], group: int, simulators: Simulators) -> None:
        self._pool, self._group, self._sizes = pool, group, simulators.sizes
        # Contiguous parts, so that the answers in worker order are the rows in order.
        edges = [len(simulators.names) * i // len(workers) for i in range(len(workers) + 1)]
        self._parts = [(w, slice(a, b)) for w, a, b in zip(workers, edges, edges[1:], strict=False)]
        self._timeout = simulators.timeout
        self._labels = [_label(simulators.part(part)) for _, part in self._parts]
        self._ask(worker.OPEN, [_request(simulators.part(part), pool.pictures) for _, part in self._parts])
        weakref.finalize(self, _retire, workers, group)

    def reset(self, seeds: NDArray[np.uint32]) -> NDArray[Any]:
        """As `Host.reset`."""
        answers = self._ask(worker.RESET, [seeds[part].tobytes() for _, part in self._parts])
        return np.frombuffer(b"".join(answers), self._sizes.dtype).reshape(-1, self._sizes.observation).copy()

    def step(self, actions: Floats, seeds: NDArray[np.uint32], last: NDArray[np.bool_]) -> Table:
        """As `Host.step`."""
        requests = [
            actions[part].astype(np.float32).tobytes() + seeds[part].tobytes() + last[part].tobytes()
            for _, part in self._parts
        ]
        answers = self._ask(worker.STEP, requests)
        return np.frombuffer(b"".join(answers), self._sizes.row).copy()

    def save(self) -> list[State]:
        """As `Host.save`."""
        answers = self._ask(worker.SAVE, [b""] * len(self._parts))
        tables = [
            np.frombuffer(answer, np.float64).reshape(part.stop - part.start, -1)
            for answer, (_, part) in zip(answers, self._parts, strict=True)
        ]
        return [state for table in tables for state in unpacked(table)]

    def restore(self, seeds: NDArray[np.uint32], states: Sequence[State]) -> None:
        """As `Host.restore`."""
        table = np.column_stack((seeds, packed(states)))
        self._ask(worker.RESTORE, [table[part].tobytes() for _, part in self._parts])

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """As `Host.render`."""
        (answer,) = self._ask(worker.PICTURE, [worker.SIZE.pack(height, width)], self._parts[:1])
        shape = worker.SIZE.unpack_from(answer)
        return np.frombuffer(answer, np.uint8, offset=worker.SIZE.size).reshape(*shape, 3)

    def _ask(
        self, operation: bytes, payloads: list[bytes], parts: list[tuple[Worker, slice]] | None = None
    ) -> list[bytes]:
        """Send a request to every worker, or to those of `parts`, then wait for all of them."""
        # All requests go out before the first answer is read, so that the workers compute in parallel.
        asked = [process for process, _ in parts or self._parts]
        try:
            for process, payload, label in zip(asked, payloads, self._labels, strict=False):
                process.runs, process.patience = label, self._timeout + PATIENCE
                process.ask(operation, self._group, payload)
            return [process.answer() for process in asked]
        except BaseException:
            # The other answers would stay in the pipes and be read as answers to the next request.
            self._pool.disband()
            raise


def _label(simulators: Simulators) -> str:
    first, last = simulators.number(0), simulators.number(len(simulators.names) - 1)
    return f"environment {first}" if first == last else f"environments {first} to {last}"


def _request(simulators: Simulators, pictures: bool) -> bytes:
    spec = {
        "opener": simulators.opener,
        "names": simulators.names,
        "action_dims": simulators.action_dims,
        "observation": simulators.sizes.observation,
        "action": simulators.sizes.action,
        "dtype": simulators.sizes.dtype,
        "agents": simulators.sizes.agents,
        "numbers": simulators.numbers,
        "timeout": simulators.timeout,
        "pictures": pictures,
    }
    return json.dumps(spec).encode()


def _retire(workers: list[Worker], group: int) -> None:
    # Only noted: the garbage collector may run this in the middle of another request.
    for process in workers:
        process.retired.append(group)
