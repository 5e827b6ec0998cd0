"""Lockstep's own Triton kernels: whether a run uses them, and why a machine cannot build them."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SWITCH = "LOCKSTEP_KERNELS"
"""The environment variable that turns them off if it is `none`: for machines on which Triton is broken."""


def missing_requirement() -> str | None:
    """Why this machine cannot build kernels for a GPU; None if it can."""
    if os.environ.get(SWITCH) == "none":
        return f"{SWITCH}=none is set"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing"
    # Triton launches a kernel through a small C extension, which it compiles on first use.
    compiler = os.environ.get("CC")
    if compiler and not shutil.which(compiler):
        return f"CC={compiler!r} is not a program"
    if not (compiler or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler (gcc or clang) is missing"
    scheme = sysconfig.get_default_scheme()
    # As Triton does: Debian's own scheme, posix_local, names a folder without headers.
    include = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
    return None if (Path(include) / "Python.h").is_file() else "Python's C headers (python3-dev) are missing"


# A module variable, because torch.compile traces through `kernels_usable` and could not trace a search of the PATH.
_used = missing_requirement() is None


def use(enabled: bool) -> None:
    """Turn kernels on or off for this process. All ranks must agree: a kernel rounds differently from eager code."""
    global _used
    _used = enabled


def used() -> bool:
    """Whether kernels are in use."""
    return _used


def kernels_usable(device: "torch.device") -> bool:
    """Whether this run uses its kernels on this device."""
    return device.type == "cuda" and _used
