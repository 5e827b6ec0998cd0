"""Where ranks meet: the key-value store of a world, on loopback unless the run spans machines."""

import contextlib
import os
import socket
import time
import uuid
from datetime import timedelta

import psutil
import torch.distributed as dist

from lockstep.core.distributed.environment import launched_size, restart_count
from lockstep.core.errors import RunFailed, UserError

LOOPBACK = "127.0.0.1"
_ADDRESS_KEY = "lockstep/store"


def loopback_listener(port: int = 0) -> socket.socket:
    """A socket that listens on this machine's loopback only."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise _port_taken(port) from error
    listener.listen(128)
    return listener


def host_store(listener: socket.socket, timeout: float) -> dist.TCPStore:
    """The store of a world, served on a socket of ours; left to itself it would listen on every interface."""
    port = listener.getsockname()[1]
    return dist.TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listener.detach(),
    )


def join_store(host: str, port: int, timeout: float) -> dist.TCPStore:
    """A client of a store that another process serves."""
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))


def all_on_this_machine() -> bool:
    """Whether every rank of this launch runs on this machine."""
    if "LOCAL_WORLD_SIZE" in os.environ:
        return int(os.environ["LOCAL_WORLD_SIZE"]) == launched_size()
    return launched_size() == 1 or os.environ.get("MASTER_ADDR") in ("localhost", LOOPBACK, "::1")


def launched_store(rank: int, timeout: float) -> dist.Store:
    """The store where the ranks of this launch meet, whoever launched them. Called by every rank."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    local = all_on_this_machine()
    # On one machine the launcher's store answers on loopback, and the host's own name may resolve to nothing.
    host = LOOPBACK if local else host
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return _serve(host, port, local, timeout) if rank == 0 else join_store(host, port, timeout)
    shared = join_store(host, port, timeout)
    if local:
        # The launcher's store outlives an attempt, and in it the addresses of ranks that are dead by now.
        return dist.PrefixStore(f"attempt-{restart_count()}", shared)
    return _publish(shared, host, timeout) if rank == 0 else _look_up(shared, host, timeout)


def _serve(host: str, port: int, local: bool, timeout: float) -> dist.TCPStore:
    if local:
        return host_store(loopback_listener(port), timeout)
    limit = timedelta(seconds=timeout)
    try:
        return dist.TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=limit)
    except dist.DistNetworkError as error:
        raise _port_taken(port) if "EADDRINUSE" in str(error) else RunFailed(str(error).splitlines()[0]) from error


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


def _port_taken(port: int) -> UserError:
    return UserError(f"port {port} is taken{port_owner(port)}; give another MASTER_PORT (torchrun --master-port)")


def port_owner(port: int) -> str:
    """Who listens on a port, in words that follow "taken"; nothing where that is not known."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
            if listens and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""
