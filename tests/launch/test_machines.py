import socket

import pytest

from lockstep.errors import UserError
from lockstep.launch.machines import Machines, interface_of


def test_one_machine_needs_no_rendezvous():
    assert Machines.parse("1", "") is None


def test_a_number_or_a_range_of_machines_is_parsed():
    assert Machines.parse("2", "node-a.local:29500") == Machines(2, 2, "node-a.local", 29500)
    assert Machines.parse("1:4", "10.0.0.1:29500") == Machines(1, 4, "10.0.0.1", 29500)
    # A range that starts at one: this machine begins alone, and others may join later.
    assert Machines.parse("1:1", "10.0.0.1:1") == Machines(1, 1, "10.0.0.1", 1)


@pytest.mark.parametrize(
    ("count", "endpoint"),
    [
        ("0", ""),
        ("4:1", "a:1"),
        ("x", ""),
        ("1:", ""),
        ("2", ""),
        ("2", "a"),
        ("2", "a:0"),
        ("2", "a:70000"),
        ("2", "a b:1"),
    ],
)
def test_invalid_values_are_refused_in_one_line(count, endpoint):
    with pytest.raises(UserError) as refusal:
        Machines.parse(count, endpoint)
    assert "\n" not in str(refusal.value)


def test_the_own_address_is_the_one_on_the_route_to_the_rendezvous():
    machines = Machines(1, 2, "localhost", 29500)
    assert machines.address() == machines.own_address() == "127.0.0.1"
    assert interface_of("127.0.0.1") == next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    assert interface_of("203.0.113.9") is None


def test_a_host_name_that_cannot_be_resolved_is_named():
    with pytest.raises(UserError, match=r"no-such-machine.invalid:1: the host name cannot be resolved here"):
        Machines(1, 2, "no-such-machine.invalid", 1).address()
