"""Which backend carries tensors between ranks, and the variables that NCCL and CUDA's allocator should start with."""

import itertools
import os
import sys
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import pynvml
import torch

from lockstep.core.distributed.environment import launched_size, local_size

INFINIBAND = Path("/sys/class/infiniband")
ROUTES = Path("/proc/net/route")


def backend_for(device: torch.device) -> str:
    """The backend for tensors on a device: NCCL for GPUs on Linux, where each rank of this machine has its own."""
    if device.type != "cuda" or sys.platform != "linux":
        return "gloo"
    # NCCL refuses two ranks on one device; gloo stages their tensors through host memory.
    return "nccl" if local_size() <= torch.cuda.device_count() else "gloo"


@dataclass(frozen=True)
class Facts:
    """What the choice of variables depends on."""

    gpus: int = 0
    """GPUs that this process may use."""
    nvlink: bool = False
    """Whether NVLink joins every pair of this machine's GPUs."""
    infiniband: tuple[str, ...] = ()
    """InfiniBand devices of this machine."""
    interface: str | None = None
    """The network interface of the default route."""
    nodes: int = 1
    """Machines of the run."""
    ranks: int = 1
    """Ranks of the run, over all machines."""


@dataclass(frozen=True)
class Setting:
    """One environment variable and why it is set."""

    name: str
    value: str
    reason: str


def detect() -> Facts:
    """The facts of this machine and of the launch this process belongs to; CUDA itself is not started."""
    gpus = torch.cuda.device_count()
    if not gpus:
        return Facts()
    return Facts(
        gpus=gpus,
        nvlink=_nvlink_everywhere(),
        infiniband=tuple(sorted(path.name for path in INFINIBAND.glob("*"))),
        interface=default_interface(ROUTES.read_text().splitlines() if ROUTES.exists() else ()),
        nodes=max(1, launched_size() // local_size()),
        ranks=launched_size(),
    )


def settings(facts: Facts) -> list[Setting]:
    """The variables that make sense for these facts; none on a machine without a GPU."""
    if not facts.gpus:
        return []
    found = []
    if sys.platform == "linux":
        reason = "memory grows in place, so changing batch shapes do not fragment it"
        found.append(Setting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", reason))
    if facts.ranks == 1:
        return found
    found.append(Setting("NCCL_DEBUG", "WARN", "NCCL says what failed, and nothing else"))
    if facts.nvlink:
        found.append(Setting("NCCL_P2P_LEVEL", "NVL", "NVLink joins all GPUs of this machine"))
    return found + (_between_machines(facts) if facts.nodes > 1 else [_within_machine()])


def _within_machine() -> Setting:
    return Setting("NCCL_SOCKET_IFNAME", "lo", "all ranks are on this machine, so NCCL need not listen on the network")


def _between_machines(facts: Facts) -> list[Setting]:
    found = []
    if facts.infiniband:
        found.append(Setting("NCCL_IB_DISABLE", "0", f"InfiniBand found: {', '.join(facts.infiniband)}"))
    else:
        found.append(Setting("NCCL_IB_DISABLE", "1", "no InfiniBand device here, so NCCL need not look for one"))
    if facts.interface:
        found.append(Setting("NCCL_SOCKET_IFNAME", facts.interface, "the interface of the default route"))
    return found


def recommended(facts: Facts) -> dict[str, str]:
    """The variables that make sense for these facts, by name."""
    return {setting.name: setting.value for setting in settings(facts)}


def apply(facts: Facts, environment: MutableMapping[str, str] = os.environ) -> list[str]:
    """Set the recommended variables that are not set yet; returns a line for each. Before the first use of CUDA."""
    lines = []
    for setting in settings(facts):
        yours = next((name for name in _spellings(setting.name) if name in environment), None)
        if yours is None:
            environment[setting.name] = setting.value
            lines.append(f"{setting.name}={setting.value} ({setting.reason})")
        else:
            lines.append(f"kept: {yours}={environment[yours]} (yours)")
    return lines


def _spellings(name: str) -> tuple[str, ...]:
    # The allocator reads two names; setting one next to the user's other one would override it.
    return (name, "PYTORCH_ALLOC_CONF") if name == "PYTORCH_CUDA_ALLOC_CONF" else (name,)


def default_interface(routes: Iterable[str]) -> str | None:
    """The interface of the default route with the smallest metric, from the lines of /proc/net/route."""
    candidates = []
    for line in routes:
        fields = line.split()
        # Destination and mask of zero: everything that no other route takes.
        if len(fields) >= 8 and fields[1] == "00000000" and fields[7] == "00000000":
            candidates.append((int(fields[6]), fields[0]))
    return min(candidates)[1] if candidates else None


def _nvlink_everywhere() -> bool:
    """Whether the driver reports NVLink between any two GPUs; False where it does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        links = [
            pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
            for one, other in itertools.combinations(handles, 2)
        ]
        return bool(links) and all(link == pynvml.NVML_P2P_STATUS_OK for link in links)
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()
