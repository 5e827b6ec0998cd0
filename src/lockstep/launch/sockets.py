"""Listening sockets of a run: opening them, naming who occupies a port, and closing them to newcomers."""

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
    """A socket that listens on one address only; OSError if the address is not this machine's or the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Otherwise a port stays unusable for about a minute after a restart (TIME_WAIT).
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
    """The error for a port that another process uses."""
    return UserError(f"port {port} is taken{port_owner(port)}; give another MASTER_PORT (torchrun --master-port)")


def port_owner(port: int) -> str:
    """Which process listens on a port, to be appended to "taken"; empty if unknown."""
    # Other users' processes may be hidden from us; the message then does without the owner.
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
            if listens and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""


@contextlib.contextmanager
def shut_afterwards() -> Iterator[None]:
    """On exit, close sockets that began to listen inside this context to new connections; existing ones continue.

    gloo connects all ranks when a group is created, but keeps its sockets listening for as long as the group lives.
    With this, nobody can connect to them later.
    """
    # By inode: descriptors are reused, inodes of open sockets are not.
    before = set(_listeners())
    yield
    for inode, descriptor in _listeners().items():
        if inode not in before:
            _drop_all(descriptor)


def _listeners() -> dict[int, int]:
    """This process's listening TCP sockets, inode to file descriptor; empty on systems without /proc."""
    found = {}
    for link in Path("/proc/self/fd").glob("*"):
        # One entry is the descriptor that listed the folder, which is closed by now.
        with contextlib.suppress(OSError, ValueError):
            descriptor = int(link.name)
            if not str(link.readlink()).startswith("socket:"):
                continue
            # A duplicate, because the socket object closes its descriptor.
            with socket.socket(fileno=os.dup(descriptor)) as opened:
                is_tcp = opened.family in (socket.AF_INET, socket.AF_INET6) and opened.type == socket.SOCK_STREAM
                if is_tcp and opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[os.fstat(descriptor).st_ino] = descriptor
    return found


def _drop_all(descriptor: int) -> None:
    """Have the kernel drop all packets to a listening socket; accepted connections have sockets of their own."""
    if sys.platform != "linux":
        return
    # gloo owns the socket, so it cannot be closed here. Instead: a packet filter of one instruction, BPF_RET 0 (keep no
    # byte of any packet). Attaching one needs no privilege.
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(instruction))
    with socket.socket(fileno=os.dup(descriptor)) as opened, contextlib.suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
