"""The store of ranks that another launcher started: torchrun's own, or one that rank 0 serves.

Anybody who can reach that store can read and change it. Lockstep's own launcher does not use one (store.py).
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
    # On one machine the store is reachable on loopback, while the host's own name may not resolve.
    host = LOOPBACK if local else host
    # Set by torchrun when its agent already serves a store at this address.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return _serve(host, port, local, timeout) if rank == 0 else join_store(host, port, timeout)
    shared = join_store(host, port, timeout)
    if local:
        # torchrun's store outlives an attempt, and still holds the addresses of its dead ranks.
        return dist.PrefixStore(f"attempt-{restart_count()}", shared)
    return _publish(shared, host, timeout) if rank == 0 else _look_up(shared, host, timeout)


def host_store(listener: socket.socket, timeout: float) -> dist.TCPStore:
    """The store of a world, served on a given socket: by default TCPStore would listen on every interface."""
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
        # The name resolves to an address that is not this machine's own, as a Kubernetes service does: listen on all.
        return dist.TCPStore(host, port, None, True, timedelta(seconds=timeout), wait_for_workers=False)


def _publish(shared: dist.Store, host: str, timeout: float) -> dist.TCPStore:
    """Serve a store for this attempt only, and publish its address for the other ranks.

    A prefix would not do, since the machines share no attempt number: each torchrun counts only its own restarts.
    """
    store = _serve(host, 0, False, timeout)
    # Proves to a client that it reached this store, and not another process that was given the same port later.
    token = uuid.uuid4().hex
    store.set(token, "")
    shared.set(_ADDRESS_KEY, f"{store.port} {token}")
    return store


def _look_up(shared: dist.Store, host: str, timeout: float) -> dist.TCPStore:
    """Find the store that this attempt's rank 0 published; retries while the address is an earlier attempt's."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        port, token = shared.get(_ADDRESS_KEY).decode().split()
        with contextlib.suppress(OSError, RuntimeError):
            # Probed first, because a TCPStore client would retry a dead port for the whole timeout.
            socket.create_connection((host, int(port)), timeout=5).close()
            store = join_store(host, int(port), timeout)
            if store.check([token]):
                return store
        time.sleep(0.2)
    raise RunFailed(f"rank 0 published no store at {host} within {timeout:g} s; check that this machine can reach it")
