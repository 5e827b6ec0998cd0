import os
import socket
import sys

import pytest

from lockstep.errors import UserError
from lockstep.launch import sockets


def test_a_taken_port_is_named_with_its_owner():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is taken by process {os.getpid()} "):
            sockets.loopback_listener(port)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux filters the packets of a socket")
def test_a_shut_listener_accepts_nobody_and_its_existing_connections_continue():
    with sockets.loopback_listener() as before, socket.socket() as early:
        with sockets.shut_afterwards():
            listener = sockets.loopback_listener()
            early.connect(listener.getsockname())
            accepted, _ = listener.accept()
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname(), timeout=0.3)
        early.sendall(b"still here")
        assert accepted.recv(10) == b"still here"
        socket.create_connection(before.getsockname(), timeout=1).close()
        accepted.close()
        listener.close()
