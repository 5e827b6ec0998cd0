"""What this machine has. Nothing here needs torch until a GPU is asked for."""

import os
import platform
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Machine:
    """The device that sizes are chosen by; `memory_gb` 0 means that there is no GPU."""

    name: str
    memory_gb: float
    physical_cores: int
    logical_cores: int


def is_arm() -> bool:
    """Whether the processor is one of Arm's, for which some libraries have slow corners."""
    return platform.machine() in ("aarch64", "arm64")


def this_machine() -> Machine:
    """The first visible GPU, or the CPU."""
    import torch

    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = min(psutil.cpu_count(logical=False) or logical, logical)
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return Machine(properties.name, properties.total_memory / 1e9, physical, logical)
    return Machine(platform.processor() or platform.machine(), 0.0, physical, logical)
