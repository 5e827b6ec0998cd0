"""Finds algorithms: the package's own by name, others as `module:Class`. Nothing here needs torch."""

import importlib
import inspect
from functools import cache
from pathlib import Path

from lockstep.algorithms.algorithm import Algorithm
from lockstep.config.fields import nearest
from lockstep.config.outside import class_from_outside
from lockstep.config.values import shown
from lockstep.errors import UserError

_FOLDER = Path(__file__).parent
_VARIANTS = {"maddpg": "ddpg"}
"""Algorithms that another one's folder contains, because they differ in defaults only."""


def names() -> list[str]:
    """List the package's own algorithms: every folder beside this file with an `algorithm.py`, and variants."""
    folders = (folder.name for folder in _FOLDER.iterdir() if (folder / "algorithm.py").is_file())
    return sorted([*folders, *_VARIANTS])


@cache
def load(name: str) -> Algorithm:
    """Load an algorithm by its name, or a class from outside the package as `module:Class`."""
    if ":" in name:
        return class_from_outside(name, Algorithm)()
    if name not in names():
        near = nearest(name, names())
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(f"algorithm {shown(name)}: unknown; {hint}known: {', '.join(names())}, or module:Class")
    module = importlib.import_module(f"lockstep.algorithms.{_VARIANTS.get(name, name)}.algorithm")
    # Exactly one class: imported ones, such as the base class, have another `__module__`.
    (found,) = (
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Algorithm) and kind.__module__ == module.__name__ and kind.name == name
    )
    return found()
