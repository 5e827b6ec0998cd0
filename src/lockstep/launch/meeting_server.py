"""Where the launchers of several machines meet: a server in one of them that knows who takes part in which round.

A round is one attempt of the run: a set of machines, and the ranks that each of them starts. It also serves the
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
"""Seconds that enough machines wait for one more."""
LOST_AFTER = 15.0
"""Seconds without a sign of life after which a machine counts as lost."""
BROKEN_GRACE = 3.0
"""Seconds that a machine whose connection broke has to come back."""

_MOST_UNPROVEN = 16
"""Connections from one address that may be in the middle of their handshake: a flood of them holds up nobody else."""
_MOST_VALUES = 100_000
_TICK = 0.5


@dataclass
class Member:
    """One machine's launcher."""

    number: int
    """In order of arrival."""
    ranks: int
    seen: float
    told_outcome: bool = False


@dataclass
class State:
    """What the server knows; guarded by its lock."""

    least: int
    most: int
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    round: int = 0
    arrivals: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    """Who takes part in the current round, in rank order."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Who waits for the next round, and since when."""
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    halvings: int = 0
    outcome: int | None = None

    def sync(self, name: str, after: int | None, ranks: int, halvings: int, now: float) -> dict[str, Any]:
        """Note a launcher's sign of life; it wants a place in a round later than `after`, or none yet."""
        if name not in self.members:
            self.members[name] = Member(self.arrivals, ranks, now)
            self.arrivals += 1
        member = self.members[name]
        member.ranks, member.seen = ranks, now
        self.halvings = max(self.halvings, halvings)
        placed = name in self.running and after is not None and self.round > after
        if after is not None and not placed and name not in self.waiting:
            self.remove(name)
            self.members[name] = member
            self.waiting[name] = now
        self.advance(now)
        member.told_outcome = self.outcome is not None
        return {
            "job": self.job,
            "round": self.round,
            "place": self.places.get(name) if name in self.running else None,
            "running": len(self.running),
            "newcomers": min(len(self.waiting), self.most - len(self.running)) if self.running else 0,
            "halvings": self.halvings,
            "outcome": self.outcome,
        }

    def remove(self, name: str) -> None:
        """Take a launcher out: it left, is lost, or wants to join anew."""
        self.members.pop(name, None)
        self.waiting.pop(name, None)
        self.places.pop(name, None)
        if name in self.running:
            self.running.remove(name)

    def advance(self, now: float) -> None:
        """Drop who is lost, and begin the next round once the last one is over and enough machines wait."""
        for name in [name for name, member in self.members.items() if now - member.seen > LOST_AFTER]:
            self.remove(name)
        ready = not self.running and self.outcome is None and len(self.waiting) >= self.least
        if ready and (len(self.waiting) >= self.most or now - max(self.waiting.values()) > LAST_CALL):
            self._begin_round()

    def _begin_round(self) -> None:
        # Machines keep their order over rounds, so that rank 0 stays where it was as long as its machine is there.
        names = sorted(self.waiting, key=lambda name: self.members[name].number)[: self.most]
        self.round += 1
        self.running, self.places = names, {}
        size, first = sum(self.members[name].ranks for name in names), 0
        for name in names:
            self.places[name] = {"first": first, "size": size}
            first += self.members[name].ranks
            del self.waiting[name]


class MeetingServer:
    """Serves the meeting on a socket, in threads of this process, until closed."""

    def __init__(self, listener: socket.socket, secret: str, least: int, most: int, say: Callable[[str], None]) -> None:
        self._listener, self._secret, self._say = listener, secret, say
        self._state = State(least, most)
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._unproven: dict[str, int] = {}
        self._turned_away: set[str] = set()
        self._open: set[socket.socket] = set()
        self._closing = False
        threading.Thread(target=self._accept, name="meeting", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.getsockname()[1]

    def close(self, linger: float) -> None:
        """End it once all launchers have heard how the run ended, or after `linger` seconds."""
        end = time.monotonic() + linger
        with self._changed:
            while time.monotonic() < end and any(not member.told_outcome for member in self._state.members.values()):
                self._changed.wait(0.1)
            self._closing = True
            # A thread blocked in accept is only woken by a shutdown, not by a close.
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
                # Out of file descriptors, or the connection was gone before it was accepted.
                time.sleep(_TICK)
                continue
            with self._changed:
                crowded = self._unproven.get(address, 0) >= _MOST_UNPROVEN
                if not crowded:
                    self._unproven[address] = self._unproven.get(address, 0) + 1
                    self._open.add(opened)
            if crowded:
                opened.close()
                continue
            threading.Thread(target=self._serve, args=(opened, address), name="meeting", daemon=True).start()

    def _serve(self, opened: socket.socket, address: str) -> None:
        try:
            try:
                # One deadline for the whole handshake, however slowly its bytes come.
                timer = threading.Timer(wire.HANDSHAKE_SECONDS, lambda: _cut(opened))
                timer.daemon = True
                timer.start()
                connection = wire.accept(opened, self._secret)
            except (OSError, wire.Stranger) as error:
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
        if isinstance(error, wire.Stranger) and address not in self._turned_away and not self._closing:
            self._turned_away.add(address)
            self._say(
                f"turned away a connection from {address}: it {error} (all machines of a run need the same run "
                "directory, or the same LOCKSTEP_SECRET)"
            )

    def _answer(self, connection: wire.Connection) -> None:
        """Serve one launcher or rank until its connection ends."""
        name = None
        with contextlib.suppress(OSError, wire.Stranger):
            while True:
                message = connection.receive(None)
                name = message.get("name", name) if message.get("do") == "sync" else name
                connection.send(self._obey(message))
        if name is not None:
            with self._changed:
                member = self._state.members.get(name)
                if member is not None:
                    # It may come back by another connection; if it does not, it is lost sooner than a silent one.
                    member.seen = min(member.seen, time.monotonic() - LOST_AFTER + BROKEN_GRACE)

    def _obey(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = getattr(self, f"_do_{message['do']}")
            with self._changed:
                return answer(message)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            # Only holders of the secret come here: another version of Lockstep, at worst.
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
            # Ranks of earlier rounds are gone; what they told each other must not be taken for this round's.
            self._values = {}
        self._changed.notify_all()
        return answer

    def _do_leave(self, message: dict[str, Any]) -> dict[str, Any]:
        self._state.remove(str(message["name"]))
        self._changed.notify_all()
        return {}

    def _do_end(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._state.outcome is None:
            self._state.outcome = int(message["code"])
        self._state.remove(str(message["name"]))
        self._changed.notify_all()
        return {}

    def _do_set(self, message: dict[str, Any]) -> dict[str, Any]:
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
        if self._values.get(key, b"") == expected:
            self._values[key] = base64.b64decode(message["value"], validate=True)
            self._changed.notify_all()
        return {"value": base64.b64encode(self._values.get(key, b"")).decode()}

    def _do_drop(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"was_there": self._values.pop(str(message["key"]), None) is not None}

    def _do_wait(self, message: dict[str, Any]) -> dict[str, Any]:
        """Wait until all keys are there; answers their values, or which are missing."""
        keys = [str(key) for key in message["keys"]]
        end = time.monotonic() + float(message["seconds"])
        while missing := [key for key in keys if key not in self._values]:
            left = end - time.monotonic()
            if left <= 0 or self._closing:
                return {"missing": missing}
            self._changed.wait(min(left, 1.0))
        return {"values": [base64.b64encode(self._values[key]).decode() for key in keys]}


def _cut(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
