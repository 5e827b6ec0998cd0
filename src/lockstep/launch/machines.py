"""Which machines take part in a run, and where they meet. Nothing here needs torch."""

import re
import socket
from dataclasses import dataclass

import psutil

from lockstep.errors import UserError

_COUNT = re.compile(r"([1-9]\d{0,3})(?::([1-9]\d{0,3}))?")
_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+):(\d{1,5})")


@dataclass(frozen=True)
class Machines:
    """A run that spans machines: how few and how many of them, and the address of one, where all of them meet."""

    least: int
    most: int
    host: str
    port: int

    @classmethod
    def parse(cls, count: str, endpoint: str) -> "Machines | None":
        """What --nnodes and --rdzv-endpoint say; None where the run keeps to this machine."""
        found = _COUNT.fullmatch(count)
        if found is None or int(found[1]) > int(found[2] or found[1]):
            raise UserError(f"--nnodes {count}: give a number of machines, or a range of them such as 1:4")
        least, most = int(found[1]), int(found[2] or found[1])
        if not endpoint:
            if most > 1:
                raise UserError(f"--nnodes {count}: several machines need --rdzv-endpoint HOST:PORT, one of their own")
            return None
        place = _ENDPOINT.fullmatch(endpoint)
        if place is None or not 0 < int(place[2]) < 65536:
            raise UserError(f"--rdzv-endpoint {endpoint}: give the name or IPv4 address of one machine and a free port")
        return cls(least, most, place[1], int(place[2]))

    @property
    def endpoint(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"

    def address(self) -> str:
        """The IPv4 address that the host's name stands for."""
        try:
            return socket.gethostbyname(self.host)
        except OSError as error:
            raise UserError(
                f"--rdzv-endpoint {self.endpoint}: the name is not known here ({error}); use an address"
            ) from error

    def own_address(self) -> str:
        """The address by which the other machines reach this one: the one it would speak to the meeting point from."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                # Nothing is sent: connecting a datagram socket only chooses the route.
                probe.connect((self.address(), self.port))
            except OSError as error:
                raise UserError(f"--rdzv-endpoint {self.endpoint}: no route from here ({error.strerror})") from error
            return probe.getsockname()[0]


def interface_of(address: str) -> str | None:
    """The name of this machine's network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.family == socket.AF_INET and one.address == address for one in addresses):
            return name
    return None
