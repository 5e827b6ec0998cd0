"""The hardware of this machine. torch is imported only when a GPU is looked for."""

import os
import platform
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Machine:
    """The hardware that default sizes depend on; `memory_gb` is 0 without a GPU."""

    name: str
    memory_gb: float
    physical_cores: int
    logical_cores: int


def is_arm() -> bool:
    """Whether this is an Arm processor, on which some oneDNN and OpenBLAS kernels are slow."""
    return platform.machine() in ("aarch64", "arm64")


def this_machine() -> Machine:
    """The first visible GPU, or the CPU."""
    import torch

    # The affinity mask, where there is one, is smaller than the machine in containers and under schedulers.
    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # psutil counts the cores of the whole machine.
    physical = min(psutil.cpu_count(logical=False) or logical, logical)
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return Machine(properties.name, properties.total_memory / 1e9, physical, logical)
    return Machine(platform.processor() or platform.machine(), 0.0, physical, logical)
