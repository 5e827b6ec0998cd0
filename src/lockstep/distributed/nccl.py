"""Which backend carries tensors between ranks, and which environment variables NCCL and CUDA's allocator get."""

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
from lockstep.launch.failures import nccl_log

SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
"""The variable with which the user allows NCCL to run several ranks on one GPU."""
SHARES_SINCE = (2, 30)
"""The first NCCL version that can."""
# Where Linux lists InfiniBand devices and the IPv4 routes; tests replace them.
INFINIBAND = Path("/sys/class/infiniband")
ROUTES = Path("/proc/net/route")


@dataclass(frozen=True)
class RankFacts:
    """The facts about one rank that the choice of the backend depends on."""

    device: str
    """The type of its device."""
    gpu: str = ""
    """The UUID of its GPU: device numbers repeat across machines and with CUDA_VISIBLE_DEVICES."""
    nccl: tuple[int, ...] = ()
    """The version of the NCCL library it has loaded; empty without one, as on every system but Linux."""
    may_share: bool = False
    """Whether the user allows NCCL to run several ranks on one GPU."""

    @classmethod
    def of(cls, device: torch.device) -> "RankFacts":
        """The facts about this process on its device."""
        if device.type != "cuda":
            return cls(device.type)
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        return cls(device.type, gpu, loaded_version(), os.environ.get(SHARING) == "1")


@dataclass(frozen=True)
class Carrier:
    """What carries tensors between ranks."""

    backend: str = "gloo"
    description: str = ""
    """The backend and why it was chosen, for the plan; empty with one rank."""
    version: str = ""
    """NCCL's version if it is used; NCCL rejects ranks with different versions."""


def backend_for(seats: Sequence[RankFacts]) -> Carrier:
    """The backend for a world, from the facts of all ranks: every rank has the same list, so all choose the same."""
    if any(seat.device != "cuda" for seat in seats):
        return Carrier("gloo", "gloo: all tensors are in host memory")
    # One rank without NCCL decides for all: a group has one backend.
    if not all(seat.nccl for seat in seats):
        return Carrier("gloo", "gloo through host memory: there is no NCCL here")
    oldest = min(seat.nccl for seat in seats)
    version = spelled(oldest)
    # The largest number of ranks on one GPU.
    most = max(Counter(seat.gpu for seat in seats).values())
    if most == 1:
        return Carrier("nccl", f"NCCL {version} (one GPU each)", spelled(seats[0].nccl))
    if oldest >= SHARES_SINCE and all(seat.may_share for seat in seats):
        return Carrier("nccl", f"NCCL {version}, {most} ranks sharing a GPU ({SHARING}=1)", spelled(seats[0].nccl))
    way_out = (
        f"can with {SHARING}=1" if oldest >= SHARES_SINCE else f"cannot; {spelled(SHARES_SINCE)} with {SHARING}=1 can"
    )
    return Carrier("gloo", f"gloo through host memory: {most} ranks share a GPU, and NCCL {version} {way_out}")


def loaded_version() -> tuple[int, ...]:
    """The version of the NCCL library this process has loaded; empty without one.

    The library itself is asked: torch reports the version it was built with, but LD_PRELOAD or another package can
    replace it.
    """
    if sys.platform != "linux" or not dist.is_nccl_available():
        return ()
    number = ctypes.c_int()
    # First the symbols of the process itself (a preloaded library), then the library by name, if it is already loaded.
    for name, mode in ((None, ctypes.DEFAULT_MODE), ("libnccl.so.2", os.RTLD_NOLOAD | os.RTLD_NOW)):
        with contextlib.suppress(OSError, AttributeError):
            if ctypes.CDLL(name, mode).ncclGetVersion(ctypes.byref(number)) == 0:
                return version_of(number.value)
    # Linked statically into torch, so torch's own answer is right.
    return tuple(torch.cuda.nccl.version()[:3])


def version_of(number: int) -> tuple[int, ...]:
    """Decode NCCL's version number: 23007 is 2.30.7; before 2.9 the format was 2708 for 2.7.8."""
    thousands, hundreds = (10_000, 100) if number >= 10_000 else (1000, 100)
    return number // thousands, number % thousands // hundreds, number % hundreds


def spelled(version: Sequence[int]) -> str:
    """A version with dots."""
    return ".".join(map(str, version))


@dataclass(frozen=True)
class Facts:
    """What the choice of variables depends on."""

    gpus: int = 0
    """The number of GPUs this process may use."""
    nvlink: bool = False
    """Whether NVLink connects every pair of this machine's GPUs."""
    infiniband: tuple[str, ...] = ()
    """InfiniBand devices of this machine."""
    interface: str | None = None
    """The network interface of the default route."""
    nodes: int = 1
    """The number of machines of the run."""
    ranks: int = 1
    """The number of ranks of the run, over all machines."""
    deterministic: bool = False
    """Whether the run must compute the same bits when it is repeated."""
    log_file: str = ""
    """The file for NCCL's warnings; empty = stdout, NCCL's own default."""


@dataclass(frozen=True)
class NcclSetting:
    """One environment variable and why it is set."""

    name: str
    value: str
    reason: str
    follows: str = ""
    """Another variable that this one belongs to: if the user has set that one, this one is left alone."""


def detect(*, ranks: int | None = None, deterministic: bool = True) -> Facts:
    """The facts about this machine and this launch. Does not initialise CUDA, so `apply` still takes effect.

    ranks: of the run, over all machines, if no launcher's variables say so.
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
        log_file=_log_file(),
    )


def _log_file() -> str:
    """A file in which NCCL's warnings are not lost: its default is stdout, which only the first rank has."""
    error_file = os.environ.get(rank_process.ERROR_FILE_VARIABLE)
    if error_file and rank_process.LAUNCHER_VARIABLE in os.environ:
        # Our launcher shows this file if the rank fails. An existing one is from an earlier attempt.
        path = nccl_log(Path(error_file))
        path.unlink(missing_ok=True)
        return str(path)
    # NCCL truncates the file when it opens it. That is harmless for a terminal or a pipe, but would erase a log.
    return "" if stat.S_ISREG(os.fstat(2).st_mode) else "/dev/stderr"


def settings(facts: Facts) -> list[NcclSetting]:
    """The variables to set for these facts; none on a machine without a GPU."""
    if not facts.gpus:
        return []
    found = []
    if sys.platform == "linux":
        reason = "memory grows in place, so changing batch shapes do not fragment it"
        found.append(NcclSetting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", reason))
    if facts.ranks == 1:
        return found  # Without a second rank NCCL is never loaded.
    found.append(NcclSetting("NCCL_DEBUG", "WARN", "NCCL reports what failed, and nothing else"))
    if facts.log_file:
        reason = "its warnings are shown if a rank fails"
        found.append(NcclSetting("NCCL_DEBUG_FILE", facts.log_file, reason, follows="NCCL_DEBUG"))
    if facts.deterministic:
        # Rings and trees add in an order fixed by ranks, sizes and topology, so NCCL may choose between them. Sums
        # computed inside NVSwitch differ from call to call (NVIDIA/nccl#1497, pytorch/pytorch#154880).
        reason = "sums computed in NVSwitch differ from call to call; --no-deterministic allows them"
        found.append(NcclSetting("NCCL_NVLS_ENABLE", "0", reason))
    # Only if every pair has it: NCCL would otherwise route the other pairs through host memory.
    if facts.nvlink:
        found.append(NcclSetting("NCCL_P2P_LEVEL", "NVL", "NVLink connects all GPUs of this machine"))
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
    """The variables to set for these facts, name to value."""
    return {setting.name: setting.value for setting in settings(facts)}


def apply(facts: Facts, environment: MutableMapping[str, str] = os.environ) -> list[str]:
    """Set the variables the user has not set; returns a line for each. Must be called before CUDA is initialised."""
    lines = []
    # Taken first: variables set in this loop are not the user's.
    from_user = set(environment)
    for setting in settings(facts):
        if setting.follows in from_user:
            continue
        yours = next((name for name in _spellings(setting.name) if name in environment), None)
        if yours is None:
            environment[setting.name] = setting.value
            lines.append(f"{setting.name}={setting.value} ({setting.reason})")
        else:
            lines.append(f"kept: {yours}={environment[yours]} (yours)")
    return lines


def _spellings(name: str) -> tuple[str, ...]:
    # The allocator reads two names; setting one could override the other, set by the user.
    return (name, "PYTORCH_ALLOC_CONF") if name == "PYTORCH_CUDA_ALLOC_CONF" else (name,)


def default_interface(routes: Iterable[str]) -> str | None:
    """The interface of the default route with the smallest metric, from the lines of /proc/net/route."""
    candidates = []
    for line in routes:
        fields = line.split()
        # Destination and mask of zero are the default route. Fields: name, destination, ..., metric (6), mask (7).
        if len(fields) >= 8 and fields[1] == "00000000" and fields[7] == "00000000":
            candidates.append((int(fields[6]), fields[0]))
    return min(candidates)[1] if candidates else None


def _nvlink_everywhere() -> bool:
    """Whether the driver reports NVLink between every two GPUs; False if it does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        links = [
            pynvml.nvmlDeviceGetP2PStatus(first, second, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
            for first, second in itertools.combinations(handles, 2)
        ]
        return bool(links) and all(link == pynvml.NVML_P2P_STATUS_OK for link in links)
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()
