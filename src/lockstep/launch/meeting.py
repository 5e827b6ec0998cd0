"""A launcher's side of the meeting of several machines: joining rounds, signs of life, and how the run ended."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.errors import RunFailed, UserError
from lockstep.launch import wire
from lockstep.launch.machines import Machines
from lockstep.launch.meeting_server import LOST_AFTER, MeetingServer
from lockstep.launch.sockets import listen, port_owner

KEEP_ALIVE = 1.0
"""Seconds between two signs of life of a launcher."""
OUT_OF_TOUCH_AFTER = LOST_AFTER + 5.0
"""Seconds without an answer after which the meeting point counts as lost; by then it counts us as lost, too."""

_JOINING = 0.2
_ANSWER_SECONDS = 5.0
_NAME_PATIENCE = 60.0
_LINGER = 5.0


@dataclass(frozen=True)
class Place:
    """What a round gives this machine: its attempt of the run, and which ranks it starts."""

    round: int
    first: int
    """The first of this machine's ranks."""
    size: int
    """Ranks of the whole world."""
    job: str = ""


class Meeting:
    """This launcher's membership in a run that spans machines; a thread gives its signs of life."""

    def __init__(self, machines: Machines, address: str, ranks: int, secret: str, server: MeetingServer | None) -> None:
        self.machines, self.secret, self._server = machines, secret, server
        self.address, self.port = address, machines.port
        self._name, self._ranks = uuid.uuid4().hex, ranks
        self._after: int | None = None
        """The round after which this launcher wants a place in one; None where it wants none yet."""
        self._round, self._met, self._halvings = 0, 0, 0
        self._view: dict[str, Any] = {}
        self._heard = time.monotonic()
        self._lock, self._asking, self._wake = threading.Lock(), threading.Lock(), threading.Event()
        self._connection: wire.Connection | None = None
        self._over = False
        threading.Thread(target=self._keep_in_touch, name="signs of life", daemon=True).start()

    def join(self, halvings: int, patience: float, give_up: Callable[[], bool]) -> Place | None:
        """The place in the next round; None where `give_up` says so or the run has ended.

        TimeoutError where too few machines came, ConnectionError where the meeting point was lost.
        """
        with self._lock:
            self._after, self._halvings = self._round, halvings
        self._wake.set()
        deadline = time.monotonic() + patience
        while not give_up() and self.outcome() is None:
            with self._lock:
                view = self._view
                if view.get("place") and view["round"] > self._round:
                    self._round, self._met = view["round"], view["running"]
                    return Place(view["round"], view["place"]["first"], view["place"]["size"], view["job"])
            if self.out_of_touch():
                raise ConnectionError("the meeting point does not answer")
            if time.monotonic() > deadline:
                raise TimeoutError("too few machines")
            time.sleep(_JOINING / 2)
        return None

    def newcomers(self) -> int:
        """Machines that wait to be let in."""
        with self._lock:
            return int(self._view.get("newcomers", 0))

    def missing(self) -> int:
        """Machines of the current round that have left it or give no sign of life."""
        with self._lock:
            if self._view.get("round", self._round) != self._round:
                # The others took us for lost and went on.
                return 1
            return max(0, self._met - int(self._view.get("running", self._met)))

    def halvings(self) -> int:
        """How often any machine found that micro-batches must be halved."""
        with self._lock:
            return max(self._halvings, int(self._view.get("halvings", 0)))

    def outcome(self) -> int | None:
        """The exit code by which another launcher ended the run; None while it goes on."""
        with self._lock:
            found = self._view.get("outcome")
            return None if found is None else int(found)

    def out_of_touch(self) -> bool:
        """Whether the meeting point no longer answers."""
        with self._lock:
            return time.monotonic() - self._heard > OUT_OF_TOUCH_AFTER

    def end(self, code: int) -> None:
        """Tell the other launchers that the run is over and how it ended; nobody can join it any more."""
        self._depart({"do": "end", "code": code})

    def leave(self) -> None:
        """Go, and let the other machines go on."""
        self._depart({"do": "leave"})

    def _depart(self, message: dict[str, Any]) -> None:
        self._over = True
        # After a sign of life that is on its way: one that came later would bring us back.
        with contextlib.suppress(OSError, wire.Stranger), self._asking:
            self._ask({**message, "name": self._name})
        self.close()

    def close(self) -> None:
        """Give no more signs of life; the server, where it is ours, waits until the others know how the run ended."""
        self._over = True
        self._wake.set()
        with self._asking:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        if self._server is not None:
            self._server.close(_LINGER)

    def _keep_in_touch(self) -> None:
        while True:
            try:
                with self._asking:
                    if self._over:
                        return
                    view = self._ask(self._sign_of_life())
            except (OSError, wire.Stranger):
                self._wake.wait(KEEP_ALIVE)
            else:
                with self._lock:
                    self._view, self._heard = view, time.monotonic()
                    joining = self._after == self._round
                self._wake.wait(_JOINING if joining else KEEP_ALIVE)
            self._wake.clear()

    def _sign_of_life(self) -> dict[str, Any]:
        with self._lock:
            own = {"name": self._name, "ranks": self._ranks, "after": self._after, "halvings": self._halvings}
        return {"do": "sync", **own}

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the server; whoever does holds `_asking`, so that answers are not mixed up."""
        try:
            if self._connection is None:
                self._connection = wire.connect(self.address, self.port, self.secret)
            self._connection.send(message)
            return self._connection.receive(_ANSWER_SECONDS)
        except (OSError, wire.Stranger):
            # A late answer would be taken for the next one: the next question gets a connection of its own.
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise


def open_meeting(machines: Machines, ranks: int, secret: str, patience: float, say: Callable[[str], None]) -> Meeting:
    """Join the meeting of this run's launchers, or host it; RunFailed where it is not found within `patience` seconds.

    The machine whose address it is hosts it, on that address only; the others wait for it.
    """
    address = _address_of(machines, min(patience, _NAME_PATIENCE))
    try:
        listener = listen(address, machines.port)
    except OSError:
        # Another machine's address, or another launcher of this machine hosts it already.
        _wait_for_host(machines, address, secret, patience)
        return Meeting(machines, address, ranks, secret, None)
    server = MeetingServer(listener, secret, machines.least, machines.most, say)
    return Meeting(machines, address, ranks, secret, server)


def _wait_for_host(machines: Machines, address: str, secret: str, patience: float) -> None:
    deadline, reason = time.monotonic() + patience, "nobody answers"
    while True:
        try:
            wire.connect(address, machines.port, secret).close()
            return
        except wire.Stranger as error:
            reason = f"what answers {error}"
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() > deadline:
            taken = f"; here the port is taken{owner}" if (owner := port_owner(machines.port)) else ""
            raise RunFailed(
                f"{machines.endpoint}: no run of ours answered within {patience:g} s ({reason}{taken}); start it on "
                "that machine as well, with the same --rdzv-endpoint and run directory, and see that its firewall "
                "lets the port through"
            )
        time.sleep(0.5)


def _address_of(machines: Machines, patience: float) -> str:
    """The meeting point's address; a cluster may take a while to learn the name of a machine that has just started."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return machines.address()
        except UserError:
            if time.monotonic() > deadline:
                raise
        time.sleep(1.0)
