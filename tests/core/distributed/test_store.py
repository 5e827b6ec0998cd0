import os
import socket

import psutil
import pytest

from lockstep.core.distributed import store
from lockstep.core.errors import UserError


def test_a_taken_port_is_named_with_its_owner():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is taken by process {os.getpid()} "):
            store.loopback_listener(port)


def test_a_store_on_our_socket_listens_on_loopback_only():
    served = store.host_store(store.loopback_listener(), 5)
    listening = [c.laddr for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == served.port] == ["127.0.0.1"]
    served.set("key", "value")
    assert store.join_store("127.0.0.1", served.port, 5).get("key") == b"value"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, True),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, True),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, False),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}, True),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "node-7"}, False),
    ],
)
def test_ranks_are_all_here_if_the_launcher_says_so(monkeypatch, variables, expected):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert store.all_on_this_machine() is expected


def test_a_rank_on_another_machine_passes_over_the_store_of_an_earlier_attempt():
    shared = store.host_store(store.loopback_listener(), 5)
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        shared.set("lockstep/store", f"{gone.getsockname()[1]} old-token")
    with pytest.raises(store.RunFailed, match="rank 0 did not offer a store"):
        store._look_up(shared, "127.0.0.1", 0.5)
    published = store._publish(shared, "127.0.0.1", 5)
    published.set("key", "value")
    assert store._look_up(shared, "127.0.0.1", 5).get("key") == b"value"
