"""Which backend carries tensors between ranks, and the variables that NCCL and CUDA's allocator should start with."""

import contextlib
import ctypes
import itertools
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pynvml
import torch
import torch.distributed as dist

from lockstep.launch import rank_process
from lockstep.launch.environment import launched_size, local_size
from lockstep.launch.failures import nccl_words

SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
"""The variable by which the user lets NCCL put several ranks on one GPU."""
SHARES_SINCE = (2, 30)
"""The first version that can."""
INFINIBAND = Path("/sys/class/infiniband")
ROUTES = Path("/proc/net/route")


@dataclass(frozen=True)
class Seat:
    """Where one rank sits, as far as the choice of the backend depends on it."""

    device: str
    """The type of its device."""
    gpu: str = ""
    """The unique name of its GPU."""
    nccl: tuple[int, ...] = ()
    """The version of the NCCL that it has loaded; empty where it has none, as everywhere but on Linux."""
    may_share: bool = False
    """Whether the user lets NCCL put several ranks on one GPU."""

    @classmethod
    def of(cls, device: torch.device) -> "Seat":
        """The seat of this process on its device."""
        if device.type != "cuda":
            return cls(device.type)
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        return cls(device.type, gpu, loaded_version(), os.environ.get(SHARING) == "1")


@dataclass(frozen=True)
class Carrier:
    """What carries tensors between ranks."""

    backend: str = "gloo"
    words: str = ""
    """Which it is and why, for the plan; empty where there is nothing to carry."""
    version: str = ""
    """NCCL's, where it is used: it refuses ranks with different ones."""


def backend_for(seats: Sequence[Seat]) -> Carrier:
    """The backend for a world, from the seats of all its ranks: every rank knows them, so all choose alike."""
    if any(seat.device != "cuda" for seat in seats):
        return Carrier("gloo", "gloo: all tensors are in host memory")
    if not all(seat.nccl for seat in seats):
        return Carrier("gloo", "gloo through host memory: there is no NCCL here")
    oldest = min(seat.nccl for seat in seats)
    version = spelled(oldest)
    most = max(Counter(seat.gpu for seat in seats).values())
    if most == 1:
        return Carrier("nccl", f"NCCL {version} (one GPU each)", spelled(seats[0].nccl))
    if oldest >= SHARES_SINCE and all(seat.may_share for seat in seats):
        return Carrier("nccl", f"NCCL {version}, {most} ranks sharing a GPU ({SHARING}=1)", spelled(seats[0].nccl))
    able = oldest >= SHARES_SINCE
    way_out = f"can with {SHARING}=1" if able else f"cannot; {spelled(SHARES_SINCE)} with {SHARING}=1 can"
    return Carrier("gloo", f"gloo through host memory: {most} ranks share a GPU, and NCCL {version} {way_out}")


def loaded_version() -> tuple[int, ...]:
    """The version of the NCCL that this process has loaded; empty where it has none.

    The library itself is asked: what torch tells is the version that it was built with, and a preloaded library or
    another package can stand in for that one.
    """
    if sys.platform != "linux" or not dist.is_nccl_available():
        return ()
    number = ctypes.c_int()
    for name, mode in ((None, ctypes.DEFAULT_MODE), ("libnccl.so.2", os.RTLD_NOLOAD | os.RTLD_NOW)):
        with contextlib.suppress(OSError, AttributeError):
            if ctypes.CDLL(name, mode).ncclGetVersion(ctypes.byref(number)) == 0:
                return version_of(number.value)
    # Linked into torch itself, so that there is no other.
    return tuple(torch.cuda.nccl.version()[:3])


def version_of(number: int) -> tuple[int, ...]:
    """NCCL's number for a version, taken apart: 23007 is 2.30.7, and before 2.9 it was 2708 for 2.7.8."""
    thousands, hundreds = (10_000, 100) if number >= 10_000 else (1000, 100)
    return number // thousands, number % thousands // hundreds, number % hundreds


def spelled(version: Sequence[int]) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


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
    deterministic: bool = False
    """Whether the run is to compute the same bits when it is repeated."""
    words: str = ""
    """The file for what NCCL has to say; empty = it goes to stdout."""


@dataclass(frozen=True)
class NcclSetting:
    """One environment variable and why it is set."""

    name: str
    value: str
    reason: str
    follows: str = ""
    """A variable that this one belongs to: where that is the user's own, so is this."""


def detect(*, ranks: int | None = None, deterministic: bool = True) -> Facts:
    """The facts of this machine and of the launch this process belongs to; CUDA itself is not started.

    ranks: of the run, over all machines, where no launcher's variables tell them.
    """
    gpus = torch.cuda.device_count()
    if not gpus:
        return Facts()
    return Facts(
        gpus=gpus,
        nvlink=_nvlink_everywhere(),
        infiniband=tuple(sorted(path.name for path in INFINIBAND.glob("*"))),
        interface=default_interface(ROUTES.read_text().splitlines() if ROUTES.exists() else ()),
        nodes=max(1, launched_size() // local_size()),
        ranks=ranks or launched_size(),
        deterministic=deterministic,
        words=_place_for_words(),
    )


def _place_for_words() -> str:
    """Where NCCL's warnings are not lost; by itself it writes to stdout, which only the first rank has."""
    error_file = os.environ.get(rank_process.ERROR_FILE_VARIABLE)
    if error_file and rank_process.LAUNCHER_VARIABLE in os.environ:
        # Our launcher shows them with a rank's last words. What is there is from an attempt before this one.
        place = nccl_words(Path(error_file))
        place.unlink(missing_ok=True)
        return str(place)
    # NCCL opens the file anew, which empties it: a terminal or a pipe does not mind, a log would lose what it holds.
    return "" if stat.S_ISREG(os.fstat(2).st_mode) else "/dev/stderr"


def settings(facts: Facts) -> list[NcclSetting]:
    """The variables that make sense for these facts; none on a machine without a GPU."""
    if not facts.gpus:
        return []
    found = []
    if sys.platform == "linux":
        reason = "memory grows in place, so changing batch shapes do not fragment it"
        found.append(NcclSetting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", reason))
    if facts.ranks == 1:
        return found
    found.append(NcclSetting("NCCL_DEBUG", "WARN", "NCCL says what failed, and nothing else"))
    if facts.words:
        reason = "its words are shown where a rank fails"
        found.append(NcclSetting("NCCL_DEBUG_FILE", facts.words, reason, follows="NCCL_DEBUG"))
    if facts.deterministic:
        # Rings and trees add in an order that ranks, sizes and topology fix, so which of them NCCL takes may stay its
        # own choice; the switches' additions differ between two calls (NVIDIA/nccl#1497, pytorch/pytorch#154880).
        reason = "sums in NVSwitch are not the same at every call; --no-deterministic allows them"
        found.append(NcclSetting("NCCL_NVLS_ENABLE", "0", reason))
    if facts.nvlink:
        found.append(NcclSetting("NCCL_P2P_LEVEL", "NVL", "NVLink joins all GPUs of this machine"))
    return found + (_between_machines(facts) if facts.nodes > 1 else [_within_machine()])


def _within_machine() -> NcclSetting:
    return NcclSetting(
        "NCCL_SOCKET_IFNAME", "lo", "all ranks are on this machine, so NCCL need not listen on the network"
    )


def _between_machines(facts: Facts) -> list[NcclSetting]:
    found = []
    if facts.infiniband:
        found.append(NcclSetting("NCCL_IB_DISABLE", "0", f"InfiniBand found: {', '.join(facts.infiniband)}"))
    else:
        found.append(NcclSetting("NCCL_IB_DISABLE", "1", "no InfiniBand device here, so NCCL need not look for one"))
    if facts.interface:
        found.append(NcclSetting("NCCL_SOCKET_IFNAME", facts.interface, "the interface of the default route"))
    return found


def recommended(facts: Facts) -> dict[str, str]:
    """The variables that make sense for these facts, by name."""
    return {setting.name: setting.value for setting in settings(facts)}


def apply(facts: Facts, environment: MutableMapping[str, str] = os.environ) -> list[str]:
    """Set the recommended variables that are not set yet; returns a line for each. Before the first use of CUDA."""
    lines = []
    own = set(environment)
    for setting in settings(facts):
        if setting.follows in own:
            continue
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
