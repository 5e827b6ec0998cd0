"""Where launchers meet: PyTorch's rendezvous, on loopback for one machine, at an address of the user's for several."""

import contextlib
import os
import socket
import threading
import time
import uuid
from datetime import timedelta

from torch import distributed as dist
from torch.distributed.elastic.rendezvous.api import RendezvousError, RendezvousInfo
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
    _RendezvousExitOp,
)

from lockstep.core.distributed.machines import Machines
from lockstep.core.distributed.store import host_store, join_store, listen, loopback_listener, port_owner
from lockstep.core.errors import RunFailed, UserError

LAST_CALL = 5.0
"""Seconds that a meeting of enough machines waits for one more."""
KEEP_ALIVE = 3
"""Seconds between two signs of life of a launcher."""
MISSED = 5
"""Signs of life that may be missing before a machine counts as lost."""

_LOCAL_STORE_TIMEOUT = 60.0
_STORE_TIMEOUT = 20.0
_NAME_PATIENCE = 60.0
_NAME = "lockstep"
_JOB, _OUTCOME = "lockstep/job", "lockstep/outcome"


class Meeting(DynamicRendezvousHandler):
    """PyTorch's rendezvous; who comes and who is missing is told to our agent, which lets the ranks save first."""

    machines: Machines | None = None
    _met = 0

    def _create_tcp_store_server(self, master_addr: str, master_port: int) -> dist.TCPStore:
        # Only asked for on one machine: several have a new store for every attempt.
        return host_store(loopback_listener(), _LOCAL_STORE_TIMEOUT)

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other launchers for the next attempt."""
        # The store that PyTorch keeps over restarts remembers ranks that are dead by now, and dies with its machine.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1" if self.machines else "0"
        found = super().next_rendezvous()
        self._met = found.world_size
        return found

    def num_nodes_waiting(self) -> int:
        """None, as far as PyTorch's agent is concerned: it would end the ranks at once to let a machine in."""
        return 0

    def newcomers(self) -> int:
        """Machines that wait to be let in."""
        return len(self._state_holder.state.wait_list) if self.machines else 0

    def missing(self) -> int:
        """Machines of the current attempt that have left it or give no sign of life."""
        return max(0, self._met - len(self._state_holder.state.participants)) if self.machines else 0

    def out_of_touch(self) -> bool:
        """Whether the meeting point itself no longer answers."""
        heard: float = self._state_holder._last_sync_time  # type: ignore[attr-defined]
        return self.machines is not None and time.monotonic() - heard > KEEP_ALIVE * MISSED + LAST_CALL

    @property
    def epoch(self) -> int:
        """The number of the meeting: a later one supersedes all before it."""
        return self._state_holder.state.round

    def job(self) -> str:
        """What the launchers of one job have in common and no other job has."""
        return self._store.compare_set(_JOB, "", uuid.uuid4().hex).decode()

    def share_largest(self, name: str, value: int) -> int:
        """The largest value that any launcher of this job has named."""
        key = f"lockstep/{name}"
        while (known := int(self._store.compare_set(key, "", str(value)).decode())) < value:
            self._store.compare_set(key, str(known), str(value))
        return known

    def end(self, exit_code: int) -> None:
        """Tell the other launchers that the run is over and how it ended; nobody can join it any more."""
        with contextlib.suppress(RuntimeError, RendezvousError):
            self._store.set(_OUTCOME, str(exit_code))
            self.shutdown()

    def outcome(self) -> int:
        """How the run ended, as another launcher said; it failed where none said so."""
        with contextlib.suppress(RuntimeError, ValueError):
            if self._store.check([_OUTCOME]):
                return int(self._store.get(_OUTCOME))
        return RunFailed.exit_code

    def leave(self) -> None:
        """Go, and let the other machines go on."""
        self._stop_heartbeats()
        with contextlib.suppress(RuntimeError, RendezvousError):
            self._op_executor.run(_RendezvousExitOp(), time.monotonic() + _STORE_TIMEOUT)


def open_meeting(machines: Machines | None, patience: float) -> Meeting:
    """The meeting of this run's launchers; RunFailed where its place cannot be reached within `patience` seconds."""
    if machines is None:
        store = host_store(loopback_listener(), _LOCAL_STORE_TIMEOUT)
        name = uuid.uuid4().hex
        return Meeting.from_backend(name, store, C10dRendezvousBackend(store, name), 1, 1, local_addr="127.0.0.1")
    store = _store_of(machines, patience)
    meeting = Meeting.from_backend(
        _NAME,
        store,
        C10dRendezvousBackend(store, _NAME),
        machines.least,
        machines.most,
        local_addr=machines.own_address(),
        timeout=RendezvousTimeout(join=timedelta(seconds=patience), last_call=timedelta(seconds=LAST_CALL)),
        keep_alive_interval=KEEP_ALIVE,
        keep_alive_max_attempt=MISSED,
    )
    meeting.machines = machines
    return meeting


def _store_of(machines: Machines, patience: float) -> dist.TCPStore:
    """The machine whose address it is serves the store, on that address only; the others wait for it."""
    address = _address_of(machines, min(patience, _NAME_PATIENCE))
    try:
        return host_store(listen(address, machines.port), _STORE_TIMEOUT)
    except OSError:
        pass  # Another machine's address, or another launcher of this machine serves it already.
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection((address, machines.port), timeout=5).close()
            if store := _joined(address, machines.port, min(patience, _STORE_TIMEOUT)):
                return store
        if time.monotonic() > deadline:
            taken = f" (here the port is taken{owner})" if (owner := port_owner(machines.port)) else ""
            raise RunFailed(
                f"{machines.endpoint}: no run of ours answered within {patience:g} s{taken}; start it on that machine "
                "as well, with the same --rdzv-endpoint, and see that its firewall lets the port through"
            )
        time.sleep(0.5)


def _joined(address: str, port: int, patience: float) -> dist.TCPStore | None:
    """The store that another launcher serves; None where what answers there is something else.

    PyTorch would wait for that for ever, and be deaf to Ctrl-C meanwhile: so a thread does, which may be left behind.
    """
    found: list[dist.TCPStore] = []

    def join() -> None:
        with contextlib.suppress(RuntimeError):
            found.append(join_store(address, port, _STORE_TIMEOUT))

    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(patience)
    return found[0] if found else None


def _address_of(machines: Machines, patience: float) -> str:
    """The meeting point's address; a cluster may take a while to learn the name of a machine that has just started."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return machines.address()
        except UserError:
            if time.monotonic() > deadline:
                raise
        time.sleep(1.0)
