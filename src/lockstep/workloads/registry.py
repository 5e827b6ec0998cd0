"""Finds workloads: the package's own by name, anybody's as `module:Class`. Nothing here needs torch."""

import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from lockstep.config.fields import nearest
from lockstep.config.outside import class_from_outside, refuse_own_code
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.workloads import capabilities
from lockstep.workloads.workload import Workload

_FOLDER = Path(__file__).parent
C = TypeVar("C")


def names() -> list[str]:
    """List the package's own workloads: every folder beside this file with a `workload.py`."""
    return sorted(folder.name for folder in _FOLDER.iterdir() if (folder / "workload.py").is_file())


@cache
def load(name: str) -> Workload:
    """Load a workload by its name, or a class from outside the package as `module:Class`."""
    if ":" in name:
        return class_from_outside(name, Workload)()
    spelled = name.replace("-", "_")
    if spelled not in names():
        near = nearest(spelled, names())
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(f"{shown(name)}: unknown workload; {hint}known: {', '.join(names())}, or module:Class")
    return _only_workload(importlib.import_module(f"lockstep.workloads.{spelled}.workload"))()


def load_stored(name: str, folder: Path) -> Workload:
    """Load the workload that a stored run or model in a folder names: anybody may have written it."""
    if ":" in name:
        refuse_own_code(name, folder)
    return load(name)


def is_name(text: str) -> bool:
    """Whether an argument names a workload rather than a run."""
    return text.replace("-", "_") in names() or (":" in text and text.partition(":")[2].isidentifier())


def able(workload: Workload, kind: type[C]) -> C:
    """The workload, typed as having a capability; raises UserError, naming the workloads that have it, if not."""
    return capabilities.capability(workload, kind, _all)


def register_environments() -> None:
    """Register the environments of every workload with Gymnasium, as entry points: nothing is imported yet."""
    import gymnasium

    for workload in _all():
        for env_id, (single, vector) in workload.environments.items():
            if env_id not in gymnasium.registry:
                gymnasium.register(env_id, entry_point=single, vector_entry_point=vector)


def _all() -> Iterator[Workload]:
    return map(load, names())


def _only_workload(module: object) -> type[Workload]:
    own = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Workload) and kind.__module__ == getattr(module, "__name__", "")
    ]
    assert len(own) == 1, f"{module} must have one workload, and has {len(own)}"
    return own[0]
