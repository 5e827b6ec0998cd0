"""Kernels of our own, written in Triton: whether a run uses them, and what hinders a machine that cannot build them."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SWITCH = "LOCKSTEP_KERNELS"
"""The environment variable that turns them off (none): for a machine on which Triton itself is broken."""


def hindrance() -> str | None:
    """Why this machine cannot build kernels for a GPU, in words; None where it can."""
    if os.environ.get(SWITCH) == "none":
        return f"{SWITCH}=none is set"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing"
    # What starts a kernel is a small C program, built where it is needed first.
    compiler = os.environ.get("CC")
    if compiler and not shutil.which(compiler):
        return f"CC={compiler!r} is no program"
    if not (compiler or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler (gcc or clang) is missing"
    scheme = sysconfig.get_default_scheme()
    # As Triton looks for them: Debian's own scheme names a folder that has none.
    include = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
    return None if (Path(include) / "Python.h").is_file() else "Python's C headers (python3-dev) are missing"


# Kept here, since a compiler that follows `kernels_fit` could not follow a search for programs.
_used = hindrance() is None


def use(wanted: bool) -> None:
    """Use kernels from now on, or do without: a kernel rounds otherwise than the same step by step."""
    global _used
    _used = wanted


def kernels_fit(device: "torch.device") -> bool:
    """Whether this run's kernels can compute on this device."""
    return device.type == "cuda" and _used
