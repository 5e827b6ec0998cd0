"""Listening sockets of a run: where they listen, who else does, and how they are shut once everybody is there."""

import contextlib
import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from lockstep.errors import UserError

LOOPBACK = "127.0.0.1"
_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER, which Python's socket module does not name."""


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens on one address of this machine only; OSError where it has no such one, or it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def loopback_listener(port: int = 0) -> socket.socket:
    """A socket that listens on this machine's loopback only."""
    try:
        return listen(LOOPBACK, port)
    except OSError as error:
        raise port_taken(port) from error


def port_taken(port: int) -> UserError:
    """What to tell the user of a port that somebody else has."""
    return UserError(f"port {port} is taken{port_owner(port)}; give another MASTER_PORT (torchrun --master-port)")


def port_owner(port: int) -> str:
    """Who listens on a port, in words that follow "taken"; nothing where that is not known."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
            if listens and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""


@contextlib.contextmanager
def shut_afterwards() -> Iterator[None]:
    """Listening sockets that come up within take no connection once it is left; those that stand are untouched.

    gloo keeps its sockets listening for as long as a group lives, though all connections are made when it is made.
    Nobody can turn up there later, to knock or to flood.
    """
    before = set(_listeners())
    yield
    for inode, descriptor in _listeners().items():
        if inode not in before:
            _drop_all(descriptor)


def _listeners() -> dict[int, int]:
    """This process's listening TCP sockets: inode and file descriptor; none where the system does not show them."""
    found = {}
    for link in Path("/proc/self/fd").glob("*"):
        # The list itself is read through a descriptor that is closed by now.
        with contextlib.suppress(OSError, ValueError):
            descriptor = int(link.name)
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as one:
                is_tcp = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
                if is_tcp and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[os.fstat(descriptor).st_ino] = descriptor
    return found


def _drop_all(descriptor: int) -> None:
    """Have the kernel drop every packet that comes for a listening socket; connections that were accepted go on."""
    if sys.platform != "linux":
        return
    # A program of one instruction in the kernel's packet filter: BPF_RET with 0, keep no byte of the packet.
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(instruction))
    with socket.socket(fileno=os.dup(descriptor)) as one, contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
