"""Stores through which ranks find each other: a file on one machine, the rendezvous server on several."""

import socket
from datetime import timedelta

import psutil
import pytest
import torch.distributed as dist

from lockstep.distributed import torchrun_store
from lockstep.distributed.store import RendezvousStore, file_store
from lockstep.errors import RunFailed
from lockstep.launch import environment
from lockstep.launch.rendezvous_server import RendezvousServer
from lockstep.launch.sockets import loopback_listener

SECRET = "a secret of this test"


@pytest.fixture
def served():
    """A rendezvous server; yields a function that makes clients of its store."""
    server = RendezvousServer(loopback_listener(), SECRET, 1, 1, lambda line: None)
    yield lambda prefix="": RendezvousStore("127.0.0.1", server.port, SECRET, 5.0, prefix)
    server.close(0.0)


@pytest.fixture(params=["file", "rendezvous"])
def store(request, served, tmp_path):
    return file_store(tmp_path / "store", 1, 5.0) if request.param == "file" else served()


def test_a_store_implements_the_operations_torch_uses(store):
    store.set("key", "value")
    assert store.get("key") == b"value"
    store.set("bytes", bytes(range(256)))
    assert store.get("bytes") == bytes(range(256))
    assert [store.add("count", 2), store.add("count", 3)] == [2, 5]
    assert store.check(["key", "count"]) and not store.check(["key", "absent"])
    store.wait(["key"], timedelta(seconds=1))
    assert store.compare_set("new", "", "first") == b"first"
    assert store.compare_set("new", "other", "second") == b"first"
    assert store.delete_key("key") and not store.check(["key"])
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError, match=r"Timed out waiting|Timeout waiting for key"):
        store.get("absent")


def test_stores_of_two_rounds_do_not_see_each_others_keys(served):
    one, other = served(prefix="round-1/"), served(prefix="round-2/")
    one.set("rank-0", "an address of round 1")
    assert one.clone().check(["rank-0"])
    assert not other.check(["rank-0"])


def test_a_wait_ends_when_another_rank_has_set_the_key(served):
    one, other = served(), served()
    with pytest.raises(dist.DistStoreError, match=r"Timed out waiting 0.1 s for late"):
        one.wait(["late"], timedelta(seconds=0.1))
    other.set("late", "here")
    assert one.get("late") == b"here"


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
def test_whether_all_ranks_are_on_this_machine_follows_from_the_launchers_variables(monkeypatch, variables, expected):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.all_on_this_machine() is expected


def test_a_store_for_torchrun_listens_on_loopback_only():
    hosted = torchrun_store.host_store(loopback_listener(), 5)
    listening = [c.laddr for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == hosted.port] == ["127.0.0.1"]
    hosted.set("key", "value")
    assert torchrun_store.join_store("127.0.0.1", hosted.port, 5).get("key") == b"value"


def test_a_rank_on_another_machine_ignores_the_store_of_an_earlier_attempt():
    shared = torchrun_store.host_store(loopback_listener(), 5)
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        shared.set("lockstep/store", f"{gone.getsockname()[1]} old-token")
    with pytest.raises(RunFailed, match="rank 0 published no store"):
        torchrun_store._look_up(shared, "127.0.0.1", 0.5)
    published = torchrun_store._publish(shared, "127.0.0.1", 5)
    published.set("key", "value")
    assert torchrun_store._look_up(shared, "127.0.0.1", 5).get("key") == b"value"
