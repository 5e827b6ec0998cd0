"""Finds workloads: by name, installed ones included, or in anybody's module or file. Nothing here needs torch."""

import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from lockstep.config import outside
from lockstep.config.fields import nearest
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.launch import given
from lockstep.workloads import capabilities
from lockstep.workloads.workload import Workload

_FOLDER = Path(__file__).parent
ENTRY_POINTS = "lockstep.workloads"
"""The group in which packages announce workloads: `maze = "my_package.workloads:Maze"`."""
C = TypeVar("C")


def names() -> list[str]:
    """List the package's own workloads: every folder beside this file with a `workload.py`."""
    return sorted(folder.name for folder in _FOLDER.iterdir() if (folder / "workload.py").is_file())


# Cached, so that a workload is one object in a process, whoever loads it.
@cache
def load(name: str) -> Workload:
    """Load a workload by its name, or from outside: `module:Class`, `file.py:Class`, or a file with one such class.

    What is found outside may also be an environment, or a function that makes one: the workload `gym` takes it.
    """
    if outside.is_outside(name):
        return _from_outside(name)
    if given.is_given(name):
        return _around(name)
    spelled = name.replace("-", "_")
    if spelled in names():
        return _only_workload(importlib.import_module(f"lockstep.workloads.{spelled}.workload"))()
    if name in installed():
        return _from_package(installed()[name])
    known = [*names(), *installed()]
    near = nearest(spelled, known)
    hint = f"the nearest is {near}; " if near else ""
    raise UserError(f"{shown(name)}: unknown workload; {hint}known: {', '.join(known)}, or module:Class, or file.py")


def load_stored(name: str, folder: Path) -> Workload:
    """Load the workload that a stored run or model in a folder names: anybody may have written it."""
    # A module next to the run must not be imported: opening a downloaded run would execute its code.
    if outside.is_outside(name):
        outside.refuse_own_code(name, folder)
    return load(name)


def is_name(text: str) -> bool:
    """Whether an argument names a workload rather than a run."""
    return text.replace("-", "_") in names() or outside.is_outside(text) or text in installed()


def _from_outside(name: str) -> Workload:
    """The workload that a module or file has, or the one around its environment."""
    if name.endswith(outside.FILE):
        module = outside.module_from_outside(name)
        label = _only_candidate(name, module)
        name = f"{name}:{label}"
    found = outside.member_from_outside(name)
    if inspect.isclass(found) and issubclass(found, Workload):
        return outside.complete(name, found)()
    if not callable(found):
        raise UserError(f"{shown(name)}: is neither a Workload nor an environment, nor a function that makes one")
    return _around(outside.absolute_name(name))


def _around(source: str) -> Workload:
    """The workload for an environment from outside."""
    return importlib.import_module("lockstep.workloads.gym.workload").Gym(source)


def _only_candidate(name: str, module: Any) -> str:
    """The one class of a file that can be trained; UserError if there are none or several."""
    workloads = outside.classes_in(module, lambda kind: issubclass(kind, Workload), own=True)
    found = workloads or outside.classes_in(module, _is_environment, own=True)
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise UserError(
            f"{shown(name)}: has no subclass of lockstep.Workload and no environment class; allowed: a class with "
            "`reset` and `step`, or name a function: file.py:function"
        )
    raise UserError(f"{shown(name)}: has several ({', '.join(found)}); name one: {name}:{next(iter(found))}")


def _is_environment(kind: type) -> bool:
    return all(callable(getattr(kind, method, None)) for method in ("reset", "step"))


@cache
def installed() -> dict[str, EntryPoint]:
    """Workloads of installed packages, by the names of their entry points."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _from_package(point: EntryPoint) -> Workload:
    return _from_outside(point.value)


def with_setting(key: str) -> list[str]:
    """The package's own workloads that have a setting, or its negation (`no_class_weights`), by any of its names."""
    names = {key, key.removeprefix("no_")}
    return [workload.name for workload in _all() if any(map(workload.layout().schema.find, names))]


def require(workload: Workload, kind: type[C]) -> C:
    """The workload, typed as having a capability; raises UserError, naming the workloads that have it, if not."""
    return capabilities.capability(workload, kind, _all)


def register_environments() -> None:
    """Register the environments of every workload with Gymnasium, as entry points: nothing is imported yet."""
    import gymnasium

    for workload in _all():
        for env_id, (single, vector) in workload.environments.items():
            # Gymnasium warns about an id that is registered again.
            if env_id not in gymnasium.registry:
                gymnasium.register(env_id, entry_point=single, vector_entry_point=vector)


def _all() -> Iterator[Workload]:
    return map(load, names())


def _only_workload(module: object) -> type[Workload]:
    # Classes defined in the module itself; imported ones, such as `Workload`, are members as well.
    own = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Workload) and kind.__module__ == getattr(module, "__name__", "")
    ]
    assert len(own) == 1, f"{module} must have one workload, and has {len(own)}"
    return own[0]
