"""The rendezvous of several machines: which machine gets which ranks in which round, and untrusted peers."""

import contextlib
import json
import pickle
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstep.errors import RunFailed
from lockstep.launch import rendezvous, rendezvous_server, wire
from lockstep.launch.machines import Machines
from lockstep.launch.rendezvous_server import LAST_CALL, LOST_AFTER, RendezvousServer, State
from lockstep.launch.sockets import loopback_listener

SECRET = "a secret of this test"


def sync(state, name, after, now, ranks=1, halvings=0):
    return state.sync(name, after, ranks, halvings, now)


def test_a_round_begins_when_all_have_joined_and_assigns_ranks_in_order_of_arrival():
    state = State(least=2, most=2)
    assert sync(state, "a", 0, 0.0, ranks=2)["place"] is None
    assert sync(state, "b", 0, 1.0, ranks=3)["place"] == {"first": 2, "size": 5}
    assert sync(state, "a", 0, 1.2, ranks=2)["place"] == {"first": 0, "size": 5}
    assert state.round == 1


def test_enough_machines_wait_a_while_for_further_ones():
    state = State(least=1, most=3)
    assert sync(state, "a", 0, 0.0)["place"] is None
    assert sync(state, "a", 0, LAST_CALL - 1)["place"] is None
    assert sync(state, "b", 0, LAST_CALL - 1)["place"] is None
    assert sync(state, "a", 0, 2 * LAST_CALL - 2)["place"] is None, "the newest may bring another"
    assert sync(state, "a", 0, 2 * LAST_CALL)["place"] == {"first": 0, "size": 2}


def test_a_newcomer_is_announced_and_joins_the_next_round_and_rank_0_stays():
    state = State(least=1, most=2)
    sync(state, "a", 0, 0.0)
    assert sync(state, "a", 0, LAST_CALL + 1)["newcomers"] == 0
    assert sync(state, "b", 0, 10.0)["place"] is None
    assert sync(state, "a", 0, 10.5)["newcomers"] == 1
    assert sync(state, "a", 1, 11.0)["place"] == {"first": 0, "size": 2}
    assert sync(state, "b", 0, 11.1)["place"] == {"first": 1, "size": 2}


def test_a_machine_beyond_the_maximum_waits_without_interrupting_the_run():
    state = State(least=1, most=1)
    sync(state, "a", 0, 0.0)
    assert sync(state, "b", 0, 1.0)["place"] is None
    assert sync(state, "a", 0, 1.5)["newcomers"] == 0


def test_a_machine_without_keep_alives_is_lost_and_the_others_see_it_missing():
    state = State(least=1, most=2)
    sync(state, "a", 0, 0.0)
    sync(state, "b", 0, 0.0)
    assert sync(state, "a", 0, LOST_AFTER - 1)["running"] == 2
    assert sync(state, "a", 0, LOST_AFTER + 1)["running"] == 1


def test_halvings_after_out_of_memory_hold_for_all_machines():
    state = State(least=1, most=2)
    sync(state, "a", 0, 0.0, halvings=2)
    assert sync(state, "b", 0, 0.0)["halvings"] == 2


@pytest.fixture
def said():
    return []


@pytest.fixture
def server(said):
    made = RendezvousServer(loopback_listener(), SECRET, 1, 2, said.append)
    yield made
    made.close(0.0)


@pytest.fixture
def join(server):
    """Launchers that have joined the server."""
    members = []

    def one(ranks=1):
        machines = Machines(1, 2, "127.0.0.1", server.port)
        members.append(rendezvous.Rendezvous(machines, "127.0.0.1", ranks, SECRET, None))
        return members[-1]

    yield one
    for member in members:
        member.close()


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_launchers_join_lose_one_and_receive_the_outcome(join, server, monkeypatch):
    monkeypatch.setattr(rendezvous_server, "LAST_CALL", 0.3)
    monkeypatch.setattr(rendezvous_server, "BROKEN_GRACE", 0.2)
    server._state.least = 2
    first, second = join(ranks=2), join()
    with ThreadPoolExecutor() as threads:
        places = threads.map(lambda member, halvings: member.join(halvings, 10, lambda: False), (first, second), (0, 1))
    one, other = places
    assert {one.first, other.first} in ({0, 2}, {0, 1})
    assert (one.size, one.round, one.job) == (3, 1, other.job)
    server._state.least = 1
    wait_until(lambda: first.halvings() == 1)
    assert not first.missing()
    second.close()
    wait_until(lambda: first.missing() == 1)
    again = first.join(1, 10, lambda: False)
    assert (again.first, again.size, again.round) == (0, 2, 2)
    third = join()
    assert third.outcome() is None
    first.end(3)
    assert third.join(0, 10, lambda: False) is None
    assert third.outcome() == 3


def test_waiting_for_too_few_machines_times_out(join, server):
    server._state.least = 2
    with pytest.raises(TimeoutError):
        join().join(0, 0.5, lambda: False)
    assert join().join(0, 10, lambda: True) is None, "a request to stop is heard"


class Payload:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return (print, ("code of an attacker ran",))


def frame(body):
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"",
        b"GET / HTTP/1.0\r\n\r\n",
        frame(b"{}"),
        frame(b"[" * 900),
        frame(json.dumps({"nonce": "x", "proof": "0" * 64}).encode()),
        frame(json.dumps({"nonce": 7, "proof": None}).encode()),
        frame(pickle.dumps(Payload())),
        struct.pack(">I", 2**32 - 1),
        bytes(range(256)) * 8,
    ],
    ids=["nothing", "http", "empty", "deep", "wrong proof", "wrong types", "pickle", "endless", "garbage"],
)
def test_an_untrusted_peer_is_rejected_and_the_server_keeps_running(server, said, capfd, bytes_sent):
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as attacker:
        greeting = json.loads(attacker.recv(4096)[4:])
        assert set(greeting) == {"lockstep", "challenge"}, "a challenge and not a word more"
        # If the server closes with unread bytes, the kernel resets the connection, and any of these calls may fail.
        with contextlib.suppress(OSError):
            attacker.sendall(bytes_sent)
            attacker.shutdown(socket.SHUT_WR)
            assert attacker.recv(4096) == b""
    wire.connect("127.0.0.1", server.port, SECRET).close()
    assert "attacker ran" not in capfd.readouterr().out
    assert all(line.startswith("turned away a connection from 127.0.0.1: it ") for line in said)


def test_a_wrong_secret_is_rejected_and_reported_once(server, said):
    for _ in range(3):
        with pytest.raises(wire.UntrustedPeer, match="does not accept this run's secret"):
            wire.connect("127.0.0.1", server.port, "another secret, as long")
    wait_until(lambda: said)
    assert len(said) == 1
    assert "does not know this run's secret" in said[0]


def test_a_recorded_proof_cannot_be_replayed(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as opened:
        challenge = wire.Connection(opened).receive(5)["challenge"]
        proof = wire.prove(SECRET, "client", challenge, "nonce")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as opened:
        connection = wire.Connection(opened)
        connection.receive(5)
        connection.send({"nonce": "nonce", "proof": proof})
        with pytest.raises(ConnectionError):
            connection.receive(5)


def test_half_open_and_slow_connections_block_nobody(server):
    crowd = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(40)]
    try:
        # Connections beyond the limit per address are closed at once; silent ones within it, after the timeout.
        wait_until(lambda: sum(server._unproven.values()) == rendezvous_server._MOST_UNPROVEN)
    finally:
        for one in crowd:
            one.close()
    wait_until(lambda: not sum(server._unproven.values()))
    wire.connect("127.0.0.1", server.port, SECRET).close()


def test_another_service_at_the_endpoint_is_not_mistaken_for_the_rendezvous_server():
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        machines = Machines(2, 2, "127.0.0.1", port)
        with pytest.raises(
            RunFailed, match=f"127.0.0.1:{port}: no launcher of this run answered within 0.1 s .*taken by"
        ):
            rendezvous.open_rendezvous(machines, 1, SECRET, 0.1, print)
