"""A launcher's side of the rendezvous of several machines: joining rounds, keep-alives, and the run's outcome."""

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
from lockstep.launch.rendezvous_server import LOST_AFTER, RendezvousServer
from lockstep.launch.sockets import listen, port_owner

KEEP_ALIVE = 1.0
"""Seconds between two keep-alive messages of a launcher."""
OUT_OF_TOUCH_AFTER = LOST_AFTER + 5.0
"""Seconds without an answer after which the server counts as lost; by then it has dropped this machine, too."""

_JOIN_INTERVAL = 0.2
"""Seconds between messages while a launcher waits for a round, so that all machines start it together."""
_ANSWER_SECONDS = 5.0
_NAME_PATIENCE = 60.0
"""Seconds to wait, at most, until the endpoint's host name can be resolved."""
_LINGER = 5.0
"""Seconds that a closing server waits for the other launchers to fetch the outcome."""


@dataclass(frozen=True)
class Place:
    """What this machine does in a round (one attempt of the run): which ranks it starts."""

    round: int
    first: int
    """The global rank of this machine's first rank."""
    size: int
    """The world size."""
    job: str = ""
    """The server's name for the run; the same in all rounds."""


class Rendezvous:
    """This launcher's membership in a run that spans machines; a thread sends its keep-alives."""

    def __init__(
        self, machines: Machines, address: str, ranks: int, secret: str, server: RendezvousServer | None
    ) -> None:
        self.machines, self.secret, self._server = machines, secret, server
        self.address, self.port = address, machines.port
        self._name, self._ranks = uuid.uuid4().hex, ranks
        self._after: int | None = None
        """This launcher wants a place in a round later than this one; None if it wants none yet."""
        self._round, self._machines_in_round, self._halvings = 0, 0, 0
        self._view: dict[str, Any] = {}
        """The server's last answer."""
        self._heard = time.monotonic()
        # `_lock` guards the fields, for microseconds. `_asking` guards the connection and is held for a round trip, so
        # the agent can always read the last view without waiting for the network.
        self._lock, self._asking, self._wake = threading.Lock(), threading.Lock(), threading.Event()
        self._connection: wire.Connection | None = None
        self._closed = False
        threading.Thread(target=self._keep_in_touch, name="keep-alive", daemon=True).start()

    def join(self, halvings: int, patience: float, give_up: Callable[[], bool]) -> Place | None:
        """Wait for a place in the next round; None if `give_up` returns True or the run has ended.

        TimeoutError if too few machines joined, ConnectionError if the server was lost.
        """
        with self._lock:
            self._after, self._halvings = self._round, halvings
        # The thread may be in the middle of its one-second pause: send the request now.
        self._wake.set()
        deadline = time.monotonic() + patience
        while not give_up() and self.outcome() is None:
            with self._lock:
                view = self._view
                # The view may still show the round that has just ended.
                if view.get("place") and view["round"] > self._round:
                    self._round, self._machines_in_round = view["round"], view["running"]
                    return Place(view["round"], view["place"]["first"], view["place"]["size"], view["job"])
            if self.out_of_touch():
                raise ConnectionError("the rendezvous server does not answer")
            if time.monotonic() > deadline:
                raise TimeoutError("too few machines")
            time.sleep(_JOIN_INTERVAL / 2)
        return None

    def newcomers(self) -> int:
        """The number of machines waiting to join."""
        with self._lock:
            return int(self._view.get("newcomers", 0))

    def missing(self) -> int:
        """The number of machines that left the current round or stopped sending keep-alives."""
        with self._lock:
            if self._view.get("round", self._round) != self._round:
                # The others dropped us as lost and started the next round: this one is over.
                return 1
            return max(0, self._machines_in_round - int(self._view.get("running", self._machines_in_round)))

    def halvings(self) -> int:
        """How often micro-batches must be halved: the maximum over all machines."""
        with self._lock:
            # Our own count may be newer than the server's last answer.
            return max(self._halvings, int(self._view.get("halvings", 0)))

    def outcome(self) -> int | None:
        """The exit code with which another launcher ended the run; None while it runs."""
        with self._lock:
            found = self._view.get("outcome")
            return None if found is None else int(found)

    def out_of_touch(self) -> bool:
        """Whether the rendezvous server no longer answers."""
        with self._lock:
            return time.monotonic() - self._heard > OUT_OF_TOUCH_AFTER

    def end(self, code: int) -> None:
        """Tell the other launchers that the run is over, and its exit code; nobody can join any more."""
        self._depart({"do": "end", "code": code})

    def leave(self) -> None:
        """Leave; the other machines continue."""
        self._depart({"do": "leave"})

    def _depart(self, message: dict[str, Any]) -> None:
        self._closed = True
        # `_asking` waits for a keep-alive that is under way: one that arrived after this message would join us again.
        with contextlib.suppress(OSError, wire.UntrustedPeer), self._asking:
            self._ask({**message, "name": self._name})
        self.close()

    def close(self) -> None:
        """Stop sending keep-alives; a server hosted here first waits until the others know the outcome."""
        self._closed = True
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
                    if self._closed:
                        return
                    view = self._ask(self._keep_alive_message())
            except (OSError, wire.UntrustedPeer):
                self._wake.wait(KEEP_ALIVE)
            else:
                with self._lock:
                    self._view, self._heard = view, time.monotonic()
                    # Until `join` sees its place and advances `_round`, this launcher is waiting for a round.
                    joining = self._after == self._round
                self._wake.wait(_JOIN_INTERVAL if joining else KEEP_ALIVE)
            self._wake.clear()

    def _keep_alive_message(self) -> dict[str, Any]:
        with self._lock:
            own = {"name": self._name, "ranks": self._ranks, "after": self._after, "halvings": self._halvings}
        return {"do": "sync", **own}

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer. The caller holds `_asking`, so answers cannot be mixed up."""
        try:
            if self._connection is None:
                self._connection = wire.connect(self.address, self.port, self.secret)
            self._connection.send(message)
            return self._connection.receive(_ANSWER_SECONDS)
        except (OSError, wire.UntrustedPeer):
            # A late answer on this connection would be taken for the next message's: the next one reconnects.
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise


def open_rendezvous(
    machines: Machines, ranks: int, secret: str, patience: float, say: Callable[[str], None]
) -> Rendezvous:
    """Join the rendezvous of this run's launchers, or host it; RunFailed if none answers within `patience` seconds.

    The machine that owns the endpoint's address hosts the server, on that address only; the others wait for it.
    """
    address = _address_of(machines, min(patience, _NAME_PATIENCE))
    try:
        listener = listen(address, machines.port)
    except OSError:
        # The address belongs to another machine, or another launcher on this machine hosts the server already.
        _wait_for_host(machines, address, secret, patience)
        return Rendezvous(machines, address, ranks, secret, None)
    server = RendezvousServer(listener, secret, machines.least, machines.most, say)
    return Rendezvous(machines, address, ranks, secret, server)


def _wait_for_host(machines: Machines, address: str, secret: str, patience: float) -> None:
    deadline, reason = time.monotonic() + patience, "nobody answers"
    while True:
        try:
            wire.connect(address, machines.port, secret).close()
            return
        except wire.UntrustedPeer as error:
            # Retried as well: it may be an earlier run that is still shutting down.
            reason = f"the peer {error}"
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() > deadline:
            taken = f"; here the port is taken{owner}" if (owner := port_owner(machines.port)) else ""
            raise RunFailed(
                f"{machines.endpoint}: no launcher of this run answered within {patience:g} s ({reason}{taken}); start "
                "the run on that machine too, with the same --rdzv-endpoint and run directory, and check that its "
                "firewall allows the port"
            )
        time.sleep(0.5)


def _address_of(machines: Machines, patience: float) -> str:
    """The rendezvous address, with retries: a cluster's DNS may not know a machine that has just started yet."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return machines.address()
        except UserError:
            if time.monotonic() > deadline:
                raise
        time.sleep(1.0)
