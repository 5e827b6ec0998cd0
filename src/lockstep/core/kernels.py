"""Kernels of our own, written in Triton: on which devices they run, and what a machine lacks that cannot build them."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def lacking() -> str | None:
    """What this machine lacks to build kernels for a GPU, in words; None where nothing is missing."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton"
    # What starts a kernel is a small C program, built where it is needed first.
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler (gcc or clang)"
    scheme = sysconfig.get_default_scheme()
    # As Triton looks for them: Debian's own scheme names a folder that has none.
    include = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
    return None if (Path(include) / "Python.h").is_file() else "Python's C headers (python3-dev)"


# Looked at once, and before anything is compiled: a compiler cannot follow this.
_CAN_BE_BUILT = lacking() is None


def kernels_fit(device: "torch.device") -> bool:
    """Whether kernels of our own can run on this device."""
    return device.type == "cuda" and _CAN_BE_BUILT
