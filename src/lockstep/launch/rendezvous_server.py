"""The rendezvous of several machines' launchers: a server in one of them that decides who takes part in which round.

A round is one attempt of the run: a set of machines, and the ranks each of them starts. The server also keeps the
key-value store through which the ranks of a round find each other.
"""

import base64
import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lockstep.launch import wire

LAST_CALL = 5.0
"""Seconds to wait for further machines once there are enough."""
LOST_AFTER = 15.0
"""Seconds without a keep-alive after which a machine counts as lost."""
BROKEN_GRACE = 3.0
"""Seconds a machine has to reconnect after its connection broke."""

_MOST_UNPROVEN = 16
"""Unauthenticated connections allowed per address, so that a flood from one address cannot exhaust threads."""
_MOST_VALUES = 100_000
_ACCEPT_RETRY = 0.5


@dataclass
class Member:
    """One machine's launcher."""

    number: int
    """In order of arrival."""
    ranks: int
    seen: float
    """When it was last heard from (monotonic clock)."""
    told_outcome: bool = False
    """Whether it has been sent the run's outcome."""


@dataclass
class State:
    """The server's state machine, without sockets or clocks; guarded by the server's lock."""

    least: int
    most: int
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    round: int = 0
    arrivals: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    """The names of the current round's machines, in rank order."""
    waiting: dict[str, float] = field(default_factory=dict)
    """The names of machines waiting for the next round, and since when."""
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    """First rank and world size by name."""
    halvings: int = 0
    outcome: int | None = None
    """The exit code once a launcher has ended the run."""

    def sync(self, name: str, after: int | None, ranks: int, halvings: int, now: float) -> dict[str, Any]:
        """Handle a launcher's keep-alive; it wants a place in a round later than `after`, or (None) no place yet."""
        if name not in self.members:
            self.members[name] = Member(self.arrivals, ranks, now)
            self.arrivals += 1
        member = self.members[name]
        member.ranks, member.seen = ranks, now
        self.halvings = max(self.halvings, halvings)
        placed = name in self.running and after is not None and self.round > after
        if after is not None and not placed and name not in self.waiting:
            # It is done with its round and waits for the next. Taking it out of `running` shows the others that the
            # round is over.
            self.remove(name)
            self.members[name] = member
            self.waiting[name] = now
        self.advance(now)
        # The outcome is part of the answer below, so from now on this launcher knows it.
        member.told_outcome = self.outcome is not None
        return {
            "job": self.job,
            "round": self.round,
            "place": self.places.get(name) if name in self.running else None,
            "running": len(self.running),
            # Only as many as fit: a machine beyond `most` must not interrupt the run.
            "newcomers": min(len(self.waiting), self.most - len(self.running)) if self.running else 0,
            "halvings": self.halvings,
            "outcome": self.outcome,
        }

    def remove(self, name: str) -> None:
        """Remove a launcher: it left, was lost, or joins again."""
        self.members.pop(name, None)
        self.waiting.pop(name, None)
        self.places.pop(name, None)
        if name in self.running:
            self.running.remove(name)

    def advance(self, now: float) -> None:
        """Drop lost machines, and begin the next round once the last one is over and enough machines wait."""
        for name in [name for name, member in self.members.items() if now - member.seen > LOST_AFTER]:
            self.remove(name)
        # A round is over when all of its machines have left it or joined the queue for the next.
        ready = not self.running and self.outcome is None and len(self.waiting) >= self.least
        # With the maximum there is nobody to wait for; otherwise the last arrival restarts the wait for further ones.
        if ready and (len(self.waiting) >= self.most or now - max(self.waiting.values()) > LAST_CALL):
            self._begin_round()

    def _begin_round(self) -> None:
        # Machines keep their order over rounds, so rank 0, which writes the logs, stays on its machine while it can.
        names = sorted(self.waiting, key=lambda name: self.members[name].number)[: self.most]
        self.round += 1
        self.running, self.places = names, {}
        size, first = sum(self.members[name].ranks for name in names), 0
        for name in names:
            self.places[name] = {"first": first, "size": size}
            first += self.members[name].ranks
            del self.waiting[name]


class RendezvousServer:
    """Serves the rendezvous on a socket, with a thread for each connection, until closed."""

    def __init__(self, listener: socket.socket, secret: str, least: int, most: int, say: Callable[[str], None]) -> None:
        self._listener, self._secret, self._say = listener, secret, say
        self._state = State(least, most)
        self._values: dict[str, bytes] = {}
        """The ranks' key-value store, for the current round."""
        self._changed = threading.Condition()
        """Guards all fields, and wakes up who waits for a key or for the outcome to be delivered."""
        self._unproven: dict[str, int] = {}
        """Connections per address that have not completed the handshake."""
        self._turned_away: set[str] = set()
        """Addresses already reported, so that each is reported once."""
        self._open: set[socket.socket] = set()
        self._closing = False
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listener.getsockname()[1]

    def close(self, linger: float) -> None:
        """Close it once all launchers have fetched the outcome, or after `linger` seconds."""
        end = time.monotonic() + linger
        with self._changed:
            while time.monotonic() < end and any(not member.told_outcome for member in self._state.members.values()):
                self._changed.wait(0.1)
            self._closing = True
            # Only shutdown wakes a thread that is blocked in accept; close alone does not.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for opened in self._open:
                with contextlib.suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                opened, (address, *_) = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                # Out of file descriptors, or the client disconnected before it was accepted.
                time.sleep(_ACCEPT_RETRY)
                continue
            with self._changed:
                crowded = self._unproven.get(address, 0) >= _MOST_UNPROVEN
                if not crowded:
                    self._unproven[address] = self._unproven.get(address, 0) + 1
                    self._open.add(opened)
            # Closed without a handshake or a thread: cheap enough to withstand a flood.
            if crowded:
                opened.close()
                continue
            threading.Thread(target=self._serve, args=(opened, address), name="rendezvous", daemon=True).start()

    def _serve(self, opened: socket.socket, address: str) -> None:
        try:
            try:
                # A deadline for the whole handshake: the socket's timeout starts again with every byte received.
                timer = threading.Timer(wire.HANDSHAKE_SECONDS, lambda: _cut(opened))
                timer.daemon = True
                timer.start()
                connection = wire.accept(opened, self._secret)
            except (OSError, wire.UntrustedPeer) as error:
                self._turn_away(address, error)
                return
            finally:
                timer.cancel()
                with self._changed:
                    self._unproven[address] -= 1
            self._answer(connection)
        finally:
            with self._changed:
                self._open.discard(opened)
            opened.close()

    def _turn_away(self, address: str, error: Exception) -> None:
        if isinstance(error, wire.UntrustedPeer) and address not in self._turned_away and not self._closing:
            self._turned_away.add(address)
            self._say(
                f"turned away a connection from {address}: it {error} (all machines of a run need the same run "
                "directory, or the same LOCKSTEP_SECRET)"
            )

    def _answer(self, connection: wire.Connection) -> None:
        """Serve one launcher or rank until it disconnects."""
        name = None
        with contextlib.suppress(OSError, wire.UntrustedPeer):
            while True:
                message = connection.receive(None)
                name = message.get("name", name) if message.get("do") == "sync" else name
                connection.send(self._handle(message))
        if name is not None:
            with self._changed:
                member = self._state.members.get(name)
                if member is not None:
                    # It may reconnect. If it does not, BROKEN_GRACE applies: a closed connection is stronger evidence
                    # of a dead machine than silence, which gets LOST_AFTER.
                    member.seen = min(member.seen, time.monotonic() - LOST_AFTER + BROKEN_GRACE)

    def _handle(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            handler = getattr(self, f"_do_{message['do']}")
            with self._changed:
                return handler(message)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            # Only holders of the secret get here, so this is at worst another version of Lockstep.
            return {"error": f"{type(error).__name__}: {error}"}

    def _do_sync(self, message: dict[str, Any]) -> dict[str, Any]:
        before = self._state.round
        answer = self._state.sync(
            str(message["name"]),
            None if message["after"] is None else int(message["after"]),
            int(message["ranks"]),
            int(message["halvings"]),
            time.monotonic(),
        )
        if self._state.round != before:
            # Keys of an earlier round hold the addresses of dead ranks.
            self._values = {}
        self._changed.notify_all()
        return answer

    def _do_leave(self, message: dict[str, Any]) -> dict[str, Any]:
        self._state.remove(str(message["name"]))
        self._changed.notify_all()
        return {}

    def _do_end(self, message: dict[str, Any]) -> dict[str, Any]:
        # The first outcome counts: launchers that fail as a consequence report theirs later.
        if self._state.outcome is None:
            self._state.outcome = int(message["code"])
        self._state.remove(str(message["name"]))
        self._changed.notify_all()
        return {}

    def _do_set(self, message: dict[str, Any]) -> dict[str, Any]:
        # A faulty rank must not exhaust the memory of the launcher, which all machines depend on.
        if len(self._values) >= _MOST_VALUES:
            raise ValueError("the store is full")
        self._values[str(message["key"])] = base64.b64decode(message["value"], validate=True)
        self._changed.notify_all()
        return {}

    def _do_add(self, message: dict[str, Any]) -> dict[str, Any]:
        key = str(message["key"])
        total = int(self._values.get(key, b"0")) + int(message["amount"])
        self._values[key] = str(total).encode()
        self._changed.notify_all()
        return {"total": total}

    def _do_compare(self, message: dict[str, Any]) -> dict[str, Any]:
        key, expected = str(message["key"]), base64.b64decode(message["expected"], validate=True)
        # torch's compare_set: an empty expectation matches a missing key.
        if self._values.get(key, b"") == expected:
            self._values[key] = base64.b64decode(message["value"], validate=True)
            self._changed.notify_all()
        return {"value": base64.b64encode(self._values.get(key, b"")).decode()}

    def _do_drop(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"was_there": self._values.pop(str(message["key"]), None) is not None}

    def _do_wait(self, message: dict[str, Any]) -> dict[str, Any]:
        """Wait until all keys exist; answers with their values, or with the missing keys after the timeout."""
        keys = [str(key) for key in message["keys"]]
        end = time.monotonic() + float(message["seconds"])
        while missing := [key for key in keys if key not in self._values]:
            left = end - time.monotonic()
            if left <= 0 or self._closing:
                return {"missing": missing}
            # Waiting releases the lock, so other connections are served meanwhile.
            self._changed.wait(min(left, 1.0))
        return {"values": [base64.b64encode(self._values[key]).decode() for key in keys]}


def _cut(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
