"""Imports classes from outside the package, given as `module:Class`."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from lockstep.config.values import shown
from lockstep.errors import UserError

C = TypeVar("C")


def class_from_outside(name: str, kind: type[C]) -> type[C]:
    """Import a subclass of `kind` given as `module:Class`; UserError if it is missing or abstract."""
    module_name, _, class_name = name.partition(":")
    _look_here()
    module = _imported(name, module_name)
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, kind)):
        candidates = [label for label, other in inspect.getmembers(module, inspect.isclass) if issubclass(other, kind)]
        # The base class itself, which the module has imported, is not a choice.
        known = ", ".join(label for label in candidates if label != kind.__name__) or "none"
        expected = f"subclass of lockstep.{kind.__name__}"
        raise UserError(f"{shown(name)}: {module_name} has no such {expected}; it has: {known}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise UserError(f"{shown(name)}: is incomplete; define {', '.join(missing)}")
    return found


def _look_here() -> None:
    """Let Python find modules in the working directory, as `python -m` does and the installed command does not."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))


def _imported(name: str, module_name: str) -> ModuleType:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UserError(f"{shown(name)}: not the name of a class; allowed: package.module:Class")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{shown(name)}: there is no module {error.name}; run this where Python finds it, or set PYTHONPATH"
        ) from error
    except Exception as error:
        # Whatever their module does wrong is the user's to mend; the last frame is where.
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {shown(str(error))}"
        raise UserError(f"{shown(name)}: cannot be imported ({reason}, {place.filename}:{place.lineno})") from error


def refuse_own_code(name: str, folder: Path) -> None:
    """Raise UserError where a stored run names a module that lies in its own directory: a run brings no code along."""
    _look_here()
    module_name = name.partition(":")[0].partition(".")[0]
    found = importlib.util.find_spec(module_name) if module_name.isidentifier() else None
    if found is not None and found.origin and Path(found.origin).resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder}: names {shown(name)}, which is code in its own directory; it is not run")
