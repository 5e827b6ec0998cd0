"""Checks of the network between ranks: ports, host name, interfaces, and the variables that NCCL and gloo read."""

import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

from lockstep.diagnostics.finding import Finding, bad, ok, warn
from lockstep.distributed.nccl import Facts, settings
from lockstep.errors import LockstepError
from lockstep.launch.sockets import loopback_listener, port_owner

# torchrun's default, and the port of PyTorch's tutorials.
_GUIDES_PORTS = (29500, 12355)
_INTERFACES = Path("/sys/class/net")
# Variables that tutorials set and that change nothing.
_WITHOUT_EFFECT = {
    "NCCL_TIMEOUT": "nothing reads it; ranks wait for --timeout SECONDS",
    "NCCL_BLOCKING_WAIT": "nothing reads it any more; ranks wait for --timeout SECONDS",
    "NCCL_ASYNC_ERROR_HANDLING": "it is called TORCH_NCCL_ASYNC_ERROR_HANDLING now, and its default is right",
}


def look_at_network(facts: Facts, environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check loopback, this machine's name, the usual ports, and the variables of NCCL and gloo."""
    return [loopback(), own_name(), *usual_ports(), *variables(facts, environment, _interfaces())]


def loopback() -> Finding:
    """Check that ranks of one machine can connect to each other."""
    try:
        # A real connection: a firewall may allow a socket to listen and still block who connects.
        with loopback_listener() as listener:
            socket.create_connection(listener.getsockname(), timeout=2).close()
            return ok("ports", "a free port on loopback answers; a run on one machine picks its own")
    except (OSError, LockstepError) as error:
        fix = "ranks connect over 127.0.0.1: allow it in the firewall or sandbox (ip link set lo up)"
        return bad("ports", f"loopback does not answer: {error}", fix)


def own_name() -> Finding:
    """Check that this machine's name resolves, which runs on several machines need."""
    name = socket.gethostname()
    try:
        address = socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    except OSError:
        fix = f"needed for several machines only: add '<address> {name}' to /etc/hosts, or set GLOO_SOCKET_IFNAME"
        return warn("host name", f"{name} does not resolve", fix)
    return ok("host name", f"{name} is {address}")


def usual_ports() -> list[Finding]:
    """Warn of taken ports that other launchers use by default; Lockstep picks a free one itself."""
    found = []
    for port in _GUIDES_PORTS:
        with socket.socket() as probe:
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        if taken:
            fix = "give torchrun another one: --master-port or --rdzv-endpoint HOST:PORT"
            found.append(warn("ports", f"port {port} is taken{port_owner(port)}", fix))
    return found


def variables(facts: Facts, environment: Mapping[str, str], interfaces: Collection[str]) -> list[Finding]:
    """Check the variables that are set, and show what a run would set."""
    # First those with a problem; the rest of the list is what a run sets, one line each, without those.
    found = [
        warn(name, f"{name}={environment[name]} has no effect", f"unset it: {why}")
        for name, why in _WITHOUT_EFFECT.items()
        if name in environment
    ]
    found += [_interface(name, environment[name], interfaces) for name in _INTERFACE_NAMES if environment.get(name)]
    found += _slowed(facts, environment)
    judged = {finding.subject for finding in found}
    for setting in settings(facts):
        if setting.name in judged:
            continue
        value = environment.get(setting.name)
        if value is None:
            found.append(ok(setting.name, f"not set; a run sets {setting.value}: {setting.reason}"))
        else:
            found.append(ok(setting.name, f"{value} (yours; a run would set {setting.value}: {setting.reason})"))
    return found


_INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def _interface(name: str, value: str, interfaces: Collection[str]) -> Finding:
    # NCCL takes prefixes, exact names after "=", and exclusions after "^".
    names = [part.lstrip("=") for part in value.split(",") if not part.startswith("^")]
    missing = [part for part in names if not any(interface.startswith(part) for interface in interfaces)]
    # Without a list of interfaces (not on Linux) nothing can be said.
    if interfaces and missing and not value.startswith("^"):
        return bad(name, f"{value}: no such interface", f"unset it, or choose from: {', '.join(sorted(interfaces))}")
    return ok(name, f"{value} (yours)")


def _slowed(facts: Facts, environment: Mapping[str, str]) -> list[Finding]:
    """Warn of variables that slow a run down, such as one that turns off a fast path that this machine has."""
    found = []
    if facts.nvlink and environment.get("NCCL_P2P_DISABLE") == "1":
        fix = "unset it: traffic does not use NVLink"
        found.append(warn("NCCL_P2P_DISABLE", "1, although NVLink connects these GPUs", fix))
    if facts.infiniband and environment.get("NCCL_IB_DISABLE") == "1":
        problem = f"1, although there is InfiniBand: {', '.join(facts.infiniband)}"
        found.append(warn("NCCL_IB_DISABLE", problem, "unset it for runs on several machines"))
    if environment.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        fix = "set INFO: torch crashes when it builds DDP with DETAIL, so a run in sync fast lowers it"
        found.append(warn("TORCH_DISTRIBUTED_DEBUG", "DETAIL: every collective is checked first", fix))
    if environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found.append(warn("CUDA_LAUNCH_BLOCKING", "1: every kernel launch waits", "unset it except to find a bug"))
    return found


def _interfaces() -> list[str]:
    return [path.name for path in _INTERFACES.glob("*")]
