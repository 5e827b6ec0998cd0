"""The store of ranks that another launcher started: torchrun's own, or one that rank 0 serves.

Whoever reaches that store can read and change what is in it; Lockstep's own launcher does not use one (store.py).
"""

import contextlib
import errno
import os
import socket
import time
import uuid
from datetime import timedelta

import torch.distributed as dist

from lockstep.errors import RunFailed
from lockstep.launch.environment import all_on_this_machine, restart_count
from lockstep.launch.sockets import LOOPBACK, listen, loopback_listener, port_taken

_ADDRESS_KEY = "lockstep/store"


def torchrun_store(rank: int, timeout: float) -> dist.Store:
    """The store at MASTER_ADDR and MASTER_PORT. Called by every rank."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    local = all_on_this_machine()
    # On one machine the launcher's store answers on loopback, and the host's own name may resolve to nothing.
    host = LOOPBACK if local else host
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return _serve(host, port, local, timeout) if rank == 0 else join_store(host, port, timeout)
    shared = join_store(host, port, timeout)
    if local:
        # torchrun's store outlives an attempt, and in it the addresses of ranks that are dead by now.
        return dist.PrefixStore(f"attempt-{restart_count()}", shared)
    return _publish(shared, host, timeout) if rank == 0 else _look_up(shared, host, timeout)


def host_store(listener: socket.socket, timeout: float) -> dist.TCPStore:
    """The store of a world, served on a socket of ours; left to itself it would listen on every interface."""
    host, port = listener.getsockname()
    return dist.TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listener.detach(),
    )


def join_store(host: str, port: int, timeout: float) -> dist.TCPStore:
    """A client of a store that another process serves."""
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))


def _serve(host: str, port: int, local: bool, timeout: float) -> dist.TCPStore:
    if local:
        return host_store(loopback_listener(port), timeout)
    try:
        return host_store(listen(socket.gethostbyname(host), port), timeout)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise port_taken(port) from error
        if error.errno != errno.EADDRNOTAVAIL:
            raise RunFailed(f"rank 0 cannot serve {host}:{port} ({error.strerror or error})") from error
        # The name leads here by way of another address, as that of a cluster's service does.
        return dist.TCPStore(host, port, None, True, timedelta(seconds=timeout), wait_for_workers=False)


def _publish(shared: dist.Store, host: str, timeout: float) -> dist.TCPStore:
    """A store for this attempt alone, and its address for the other ranks.

    Several machines share no attempt number: each launcher counts only the restarts that its own ranks caused.
    """
    store = _serve(host, 0, False, timeout)
    token = uuid.uuid4().hex
    store.set(token, "")
    shared.set(_ADDRESS_KEY, f"{store.port} {token}")
    return store


def _look_up(shared: dist.Store, host: str, timeout: float) -> dist.TCPStore:
    """The store that this attempt's rank 0 published; an address of an earlier attempt no longer answers."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        port, token = shared.get(_ADDRESS_KEY).decode().split()
        with contextlib.suppress(OSError, RuntimeError):
            socket.create_connection((host, int(port)), timeout=5).close()
            store = join_store(host, int(port), timeout)
            if store.check([token]):
                return store
        time.sleep(0.2)
    raise RunFailed(f"rank 0 did not offer a store at {host} within {timeout:g} s; is that machine reachable?")
