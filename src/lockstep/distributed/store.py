"""The key-value store through which the ranks of a world find each other, and which only they can reach.

On one machine it is a file in a folder that only the user can open. On several it is kept by the launchers' rendezvous
server, which requires the run's secret. Under another launcher (torchrun) it is that launcher's own store.
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
"""Time for the answer to travel, in addition to the time the server waits for a key."""


def file_store(path: Path, size: int, timeout: float) -> dist.Store:
    """The store of ranks on one machine. Called by every rank; the folder must be private to the user."""
    store = dist.FileStore(str(path), size)
    store.set_timeout(timedelta(seconds=timeout))
    return store


class RendezvousStore(dist.Store):
    """The store of ranks on several machines, kept by the rendezvous server and protected by the run's secret.

    torch's native code does not keep the Python object alive: the creator must hold it for as long as groups use it.
    """

    def __init__(self, address: str, port: int, secret: str, timeout: float, prefix: str = "") -> None:
        """`prefix`: prepended to all keys, to separate the worlds of different rounds."""
        super().__init__()
        self._server = address, port, secret
        self._seconds, self._prefix = timeout, prefix
        self._connection, self._lock = wire.connect(address, port, secret, timeout), threading.Lock()
        # torch clones the store and, as above, does not keep the clone alive.
        self._clones: list[RendezvousStore] = []

    def _ask(self, message: dict[str, Any], patience: float = 0.0) -> dict[str, Any]:
        # torch calls from several threads; a message and its answer belong together.
        with self._lock:
            self._connection.send(message)
            answer = self._connection.receive(patience + _SPARE_SECONDS)
        if "error" in answer:
            raise RuntimeError(f"the rendezvous server: {answer['error']}")
        return answer

    def set(self, key: str, value: bytes | str) -> None:
        """Store a value."""
        self._ask({"do": "set", "key": self._prefix + key, "value": _encode(value)})

    def get(self, key: str) -> bytes:
        """Wait for a key and return its value."""
        return self._wait([key], self._seconds)[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys exist."""
        self._wait(keys, self._seconds if timeout is None else timeout.total_seconds())

    def _wait(self, keys: Sequence[str], seconds: float) -> list[bytes]:
        answer = self._ask({"do": "wait", "keys": [self._prefix + key for key in keys], "seconds": seconds}, seconds)
        if "missing" in answer:
            # The wording that failures.py recognises as the consequence of a missing peer.
            raise dist.DistStoreError(f"Timed out waiting {seconds:g} s for {', '.join(answer['missing'])}")
        return [base64.b64decode(value) for value in answer["values"]]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter; returns the new value."""
        return int(self._ask({"do": "add", "key": self._prefix + key, "amount": amount})["total"])

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist."""
        return "values" in self._ask({"do": "wait", "keys": [self._prefix + key for key in keys], "seconds": 0})

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """Store a value if the key has the expected one; returns the value it has afterwards."""
        answer = self._ask(
            {"do": "compare", "key": self._prefix + key, "expected": _encode(expected), "value": _encode(desired)}
        )
        return base64.b64decode(answer["value"])

    def delete_key(self, key: str) -> bool:
        """Remove a key; returns whether it existed."""
        return bool(self._ask({"do": "drop", "key": self._prefix + key})["was_there"])

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long `get` and `wait` wait."""
        self._seconds = timeout.total_seconds()

    def clone(self) -> "RendezvousStore":
        """The same store over a connection of its own, so that one thread's wait does not block another's."""
        self._clones.append(RendezvousStore(*self._server, self._seconds, self._prefix))
        return self._clones[-1]


def _encode(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()


def launched_store(rank: int, timeout: float) -> dist.Store:
    """The store of this launch's ranks, whichever launcher started them. Called by every rank."""
    # Set by our launcher on one machine; the next one by our launcher on several.
    if path := os.environ.get(environment.STORE_FILE):
        return file_store(Path(path), launched_size(), timeout)
    if endpoint := os.environ.get(environment.RENDEZVOUS):
        return _rendezvous_store(endpoint, timeout)
    return torchrun_store(rank, timeout)


def _rendezvous_store(endpoint: str, timeout: float) -> dist.Store:
    address, port, round_number = endpoint.split()
    try:
        # The prefix keeps a late rank of an earlier round from taking the new round's addresses for its peers'.
        return RendezvousStore(address, int(port), os.environ[SECRET], timeout, f"round-{round_number}/")
    except (OSError, wire.UntrustedPeer) as error:
        raise RunFailed(f"{address}:{port}: this rank could not connect to the rendezvous server ({error})") from error
