"""Worker processes that hold environments for this one. Needs no torch.

A pool is started once and kept: an evaluation finds the workers that training has started. A worker that dies, fails or
falls silent stops the run with one line that says so; none of them can outlive this process (see worker.py).
"""

import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import lockstep
from lockstep.errors import RunFailed
from lockstep.workloads.control import worker
from lockstep.workloads.control.hosting import Sizes, packed, unpacked
from lockstep.workloads.control.simulation import Floats, State

PATIENCE = 300.0
"""Seconds without an answer after which a worker is taken for lost."""


class Worker:
    """One process."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        source = str(Path(lockstep.__file__).parents[1])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.retired: list[int] = []
        """Groups whose owner is gone."""

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def ask(self, wanted: bytes, group: int, payload: bytes = b"") -> None:
        """Send a request; its answer must be taken before the next one."""
        while self.retired:
            self._write(worker.REQUEST.pack(worker.CLOSE, self.retired.pop(), 0))
        self._write(worker.REQUEST.pack(wanted, group, len(payload)) + payload)

    def answer(self) -> bytes:
        """Wait for the answer to what was asked."""
        good, size = worker.ANSWER.unpack(self._read(worker.ANSWER.size))
        payload = self._read(size)
        if not good:
            raise RunFailed(f"an environment failed in worker {self.pid}: {payload.decode()}")
        return payload

    def end(self) -> None:
        """End the process and wait until it has."""
        self._process.kill()
        self._process.wait()

    def _write(self, message: bytes) -> None:
        rest = memoryview(message)
        try:
            while rest:
                rest = rest[os.write(self._to, rest) :]
        except BrokenPipeError as error:
            raise self._dead() from error

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            if not select.select([self._from], [], [], PATIENCE)[0]:
                self._process.kill()
                raise RunFailed(f"worker {self.pid}, which runs environments, was silent for {PATIENCE:.0f} s")
            part = os.read(self._from, size)
            if not part:
                raise self._dead()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _dead(self) -> RunFailed:
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunFailed(f"worker {self.pid}, which runs environments, {how}; its memory may have been too little")


class WorkerPool:
    """Workers that share out environments among them."""

    def __init__(self, pictures: bool = False, **variables: str) -> None:
        """`pictures`: for environments that are looked at. `variables`: of the workers' processes."""
        self.workers: list[Worker] = []
        self.pictures = pictures
        self._variables = variables
        self._groups = count()

    def host(self, size: int, tasks: Sequence[str], action_dims: Sequence[int], sizes: Sizes) -> "RemoteHost":
        """Environments in so many processes."""
        while len(self.workers) < size:
            self.workers.append(Worker(self._variables))
        return RemoteHost(self, self.workers[:size], next(self._groups), tasks, action_dims, sizes)

    def disband(self) -> None:
        """End all workers."""
        for one in self.workers:
            one.end()
        self.workers.clear()


@cache
def shared_pool() -> WorkerPool:
    """The pool of this process."""
    return WorkerPool()


class RemoteHost:
    """As `hosting.Host`, with the environments shared out over workers."""

    def __init__(
        self,
        pool: WorkerPool,
        workers: list[Worker],
        group: int,
        tasks: Sequence[str],
        action_dims: Sequence[int],
        sizes: Sizes,
    ) -> None:
        self._pool, self._group, self._sizes = pool, group, sizes
        edges = [len(tasks) * i // len(workers) for i in range(len(workers) + 1)]
        self._parts = [(w, slice(a, b)) for w, a, b in zip(workers, edges, edges[1:], strict=False)]
        about = {"observation": sizes.observation, "action": sizes.action, "pictures": pool.pictures}
        self._ask(
            worker.OPEN,
            [
                json.dumps(about | {"tasks": list(tasks[part]), "action_dims": list(action_dims[part])}).encode()
                for _, part in self._parts
            ],
        )
        weakref.finalize(self, _retire, workers, group)

    def reset(self, seeds: NDArray[np.uint32]) -> Floats:
        """As `Host.reset`."""
        answers = self._ask(worker.RESET, [seeds[part].tobytes() for _, part in self._parts])
        return np.frombuffer(b"".join(answers), np.float32).reshape(-1, self._sizes.observation).copy()

    def step(self, actions: Floats, seeds: NDArray[np.uint32], last: NDArray[np.bool_]) -> Floats:
        """As `Host.step`."""
        requests = [
            actions[part].astype(np.float32).tobytes() + seeds[part].tobytes() + last[part].tobytes()
            for _, part in self._parts
        ]
        answers = self._ask(worker.STEP, requests)
        return np.frombuffer(b"".join(answers), np.float32).reshape(-1, self._sizes.row).copy()

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
        self, wanted: bytes, payloads: list[bytes], parts: list[tuple[Worker, slice]] | None = None
    ) -> list[bytes]:
        """Put a request to every worker, or to some, then wait for all of them."""
        asked = [one for one, _ in parts or self._parts]
        try:
            for one, payload in zip(asked, payloads, strict=True):
                one.ask(wanted, self._group, payload)
            return [one.answer() for one in asked]
        except BaseException:
            # Nobody would take the other answers, and the next request would get them.
            self._pool.disband()
            raise


def _retire(workers: list[Worker], group: int) -> None:
    # Only noted: this may be called in the midst of another request.
    for one in workers:
        one.retired.append(group)
