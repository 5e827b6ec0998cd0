"""Where the ranks of a world find each other: a key-value store that only they can reach.

On one machine that is a file in a folder that only the user can open; on several, the server of the launchers'
meeting, which asks for the run's secret. Under another launcher (torchrun) it is that launcher's own store.
"""

import base64
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lockstep.distributed.torchrun_store import torchrun_store
from lockstep.errors import RunFailed
from lockstep.launch import environment, wire
from lockstep.launch.environment import launched_size
from lockstep.launch.secret import VARIABLE as SECRET

_SPARE_SECONDS = 5.0
"""What the answer may take on its way, beyond the time that the server waits for a key."""


def file_store(path: Path, size: int, timeout: float) -> dist.Store:
    """The store of ranks on one machine. Called by every rank, and by nobody else: the folder is theirs alone."""
    store = dist.FileStore(str(path), size)
    store.set_timeout(timedelta(seconds=timeout))
    return store


class MeetingStore(dist.Store):
    """The store of ranks on several machines, kept by the meeting's server and reached with the run's secret.

    torch's native code does not keep the Python object alive: whoever makes one holds it for as long as groups use it.
    """

    def __init__(self, address: str, port: int, secret: str, timeout: float, prefix: str = "") -> None:
        """`prefix`: what the keys of this world begin with."""
        super().__init__()
        self._server = address, port, secret
        self._seconds, self._prefix = timeout, prefix
        self._connection, self._lock = wire.connect(address, port, secret, timeout), threading.Lock()
        self._clones: list[MeetingStore] = []

    def _ask(self, message: dict[str, Any], patience: float = 0.0) -> dict[str, Any]:
        with self._lock:
            self._connection.send(message)
            answer = self._connection.receive(patience + _SPARE_SECONDS)
        if "error" in answer:
            raise RuntimeError(f"the meeting's server: {answer['error']}")
        return answer

    def set(self, key: str, value: bytes | str) -> None:
        """Store a value."""
        self._ask({"do": "set", "key": self._prefix + key, "value": _coded(value)})

    def get(self, key: str) -> bytes:
        """A value, once it is there."""
        return self._wait([key], self._seconds)[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        self._wait(keys, self._seconds if timeout is None else timeout.total_seconds())

    def _wait(self, keys: Sequence[str], seconds: float) -> list[bytes]:
        answer = self._ask({"do": "wait", "keys": [self._prefix + key for key in keys], "seconds": seconds}, seconds)
        if "missing" in answer:
            raise dist.DistStoreError(f"Timed out waiting {seconds:g} s for {', '.join(answer['missing'])}")
        return [base64.b64decode(value) for value in answer["values"]]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter."""
        return int(self._ask({"do": "add", "key": self._prefix + key, "amount": amount})["total"])

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return "values" in self._ask({"do": "wait", "keys": [self._prefix + key for key in keys], "seconds": 0})

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """Store a value where the key has the expected one; returns what it has now."""
        answer = self._ask(
            {"do": "compare", "key": self._prefix + key, "expected": _coded(expected), "value": _coded(desired)}
        )
        return base64.b64decode(answer["value"])

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return bool(self._ask({"do": "drop", "key": self._prefix + key})["was_there"])

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait."""
        self._seconds = timeout.total_seconds()

    def clone(self) -> "MeetingStore":
        """The same store for another thread, which then does not wait while this one does."""
        self._clones.append(MeetingStore(*self._server, self._seconds, self._prefix))
        return self._clones[-1]


def _coded(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()


def launched_store(rank: int, timeout: float) -> dist.Store:
    """The store where the ranks of this launch meet, whoever launched them. Called by every rank."""
    if path := os.environ.get(environment.STORE_FILE):
        return file_store(Path(path), launched_size(), timeout)
    if place := os.environ.get(environment.MEETING):
        return _meeting_store(place, timeout)
    return torchrun_store(rank, timeout)


def _meeting_store(place: str, timeout: float) -> dist.Store:
    address, port, round_number = place.split()
    try:
        # A rank that is late by a round must not take the addresses of the next one for its peers'.
        return MeetingStore(address, int(port), os.environ[SECRET], timeout, f"round-{round_number}/")
    except (OSError, wire.Stranger) as error:
        raise RunFailed(f"{address}:{port}: the meeting of the machines does not answer this rank ({error})") from error
