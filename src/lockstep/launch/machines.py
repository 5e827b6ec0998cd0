"""How many machines take part in a run, and their rendezvous endpoint. Needs no torch."""

import re
import socket
from dataclasses import dataclass

import psutil

from lockstep.errors import UserError

_COUNT = re.compile(r"([1-9]\d{0,3})(?::([1-9]\d{0,3}))?")
# Host names and IPv4 only, as everywhere in this package: listeners and `own_address` use AF_INET.
_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+):(\d{1,5})")


@dataclass(frozen=True)
class Machines:
    """A run that spans machines: the fewest and the most of them, and the rendezvous endpoint on one of them."""

    least: int
    most: int
    host: str
    port: int

    @classmethod
    def parse(cls, count: str, endpoint: str) -> "Machines | None":
        """Read --nnodes and --rdzv-endpoint; None if the run uses this machine only."""
        # MIN:MAX as in torchrun; a single number stands for both.
        found = _COUNT.fullmatch(count)
        if found is None or int(found[1]) > int(found[2] or found[1]):
            raise UserError(f"--nnodes {count}: give a number of machines, or a range such as 1:4")
        least, most = int(found[1]), int(found[2] or found[1])
        if not endpoint:
            if most > 1:
                raise UserError(
                    f"--nnodes {count}: several machines need --rdzv-endpoint HOST:PORT, HOST being one of them"
                )
            # One machine and no endpoint: the ranks use a file, and nothing listens.
            return None
        parts = _ENDPOINT.fullmatch(endpoint)
        if parts is None or not 0 < int(parts[2]) < 65536:
            raise UserError(f"--rdzv-endpoint {endpoint}: give the name or IPv4 address of one machine and a free port")
        return cls(least, most, parts[1], int(parts[2]))

    @property
    def endpoint(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"

    def address(self) -> str:
        """The IPv4 address of the host."""
        try:
            return socket.gethostbyname(self.host)
        except OSError as error:
            raise UserError(
                f"--rdzv-endpoint {self.endpoint}: the host name cannot be resolved here ({error}); use an address"
            ) from error

    def own_address(self) -> str:
        """The address at which other machines reach this one: the local end of its route to the rendezvous host."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                # Connecting a UDP socket sends nothing; it only makes the kernel choose a route and a source address.
                probe.connect((self.address(), self.port))
            except OSError as error:
                raise UserError(f"--rdzv-endpoint {self.endpoint}: no route from here ({error.strerror})") from error
            return probe.getsockname()[0]


def interface_of(address: str) -> str | None:
    """The name of this machine's network interface with the given address; None if there is none."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(own.family == socket.AF_INET and own.address == address for own in addresses):
            return name
    return None
