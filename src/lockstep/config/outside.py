"""Finds what users wrote outside the package: `module:Name`, `folder/file.py:Name` or a file alone. Needs no torch."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from lockstep.config.fields import nearest
from lockstep.config.values import shown
from lockstep.errors import UserError

C = TypeVar("C")
FILE = ".py"


def is_outside(name: str) -> bool:
    """Whether a name is that of a file, or of something in a module, rather than one of the package's own."""
    module, _, member = name.rpartition(":")
    return name.endswith(FILE) or (bool(module) and (module.endswith(FILE) or member.isidentifier()))


def absolute_name(name: str) -> str:
    """The name as it is found from any working directory: a file's path is made absolute."""
    path, member = _parted(name)
    return f"{Path(path).absolute()}{':' if member else ''}{member}" if path.endswith(FILE) else name


def name_of(thing: Any) -> str:
    """The name by which another process finds a class or function in its module; empty if it cannot."""
    module, label = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    # The main script would run again if another process imported it.
    if module in ("", "__main__") or not label.isidentifier():
        return ""
    found = sys.modules.get(module)
    return f"{module}:{label}" if found is not None and getattr(found, label, None) is thing else ""


def module_from_outside(name: str) -> ModuleType:
    """Import the module or file that a name begins with; UserError if that fails."""
    path, _ = _parted(name)
    _look_here()
    return _imported_file(name, Path(path)) if path.endswith(FILE) else _imported(name, path)


def member_from_outside(name: str) -> Any:
    """What a name `module:Name` or `file.py:Name` means; UserError if there is no such thing."""
    path, member = _parted(name)
    module = module_from_outside(name)
    if not hasattr(module, member):
        # What it defines, not what it imports.
        own = {label: thing for label, thing in vars(module).items() if not label.startswith("_")}
        known = [label for label, thing in own.items() if getattr(thing, "__module__", "") == module.__name__]
        raise UserError(f"{shown(name)}: {path} has no {shown(member)}; it has: {', '.join(known) or 'nothing'}")
    return getattr(module, member)


def class_from_outside(name: str, kind: type[C]) -> type[C]:
    """Import a subclass of `kind` given as `module:Class`; UserError if it is missing or abstract."""
    path, class_name = _parted(name)
    module = module_from_outside(name)
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, kind)):
        candidates = classes_in(module, lambda other: issubclass(other, kind))
        # The base class itself, which the module has imported, is not a choice.
        known = ", ".join(label for label in candidates if label != kind.__name__) or "none"
        expected = f"subclass of lockstep.{kind.__name__}"
        raise UserError(f"{shown(name)}: {path} has no such {expected}; it has: {known}")
    return complete(name, found)


def complete(name: str, kind: type[C]) -> type[C]:
    """The class itself; UserError if it still has abstract methods."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise UserError(f"{shown(name)}: is incomplete; define {', '.join(missing)}")
    return kind


def classes_in(module: ModuleType, suits: Callable[[type], bool], own: bool = False) -> dict[str, type]:
    """The classes of a module that suit, by name; `own`: only those that it defines itself."""
    return {
        label: kind
        for label, kind in inspect.getmembers(module, inspect.isclass)
        if suits(kind) and (not own or kind.__module__ == module.__name__)
    }


def refuse_own_code(name: str, folder: Path) -> None:
    """Raise UserError where a stored run names a module that lies in its own directory: a run brings no code along."""
    path, _ = _parted(name)
    if path.endswith(FILE):
        origin = str(Path(path).absolute())
    else:
        _look_here()
        module_name = path.partition(".")[0]
        found = importlib.util.find_spec(module_name) if module_name.isidentifier() else None
        origin = (found.origin if found is not None else "") or ""
    if origin and Path(origin).resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder}: names {shown(name)}, which is code in its own directory; it is not run")


def _parted(name: str) -> tuple[str, str]:
    """The module or file, and the name in it; empty if only a file is given."""
    if name.endswith(FILE):
        return name, ""
    path, _, member = name.rpartition(":")
    return path, member


def _look_here() -> None:
    """Let Python find modules in the working directory, as `python -m` does and the installed command does not."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))


def _imported_file(name: str, path: Path) -> ModuleType:
    path = path.absolute()
    if not path.is_file():
        near = nearest(path.name, [file.name for file in path.parent.glob(f"*{FILE}")])
        hint = f"the nearest is {path.parent / near}; " if near else ""
        raise UserError(f"{shown(name)}: no such file; {hint}allowed: the path of a Python file, or file.py:Class")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    # Under its own name, as if imported from its folder; a file named like a module in use gets another one.
    label = path.stem if known is None and path.stem.isidentifier() else f"lockstep_file_{path.stem.replace('-', '_')}"
    if label in sys.modules and getattr(sys.modules[label], "__file__", None) == str(path):
        return sys.modules[label]
    spec = importlib.util.spec_from_file_location(label, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        # Files beside it can be imported, as for a script.
        sys.path.insert(0, str(path.parent))
    sys.modules[label] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[label]
        if isinstance(error, Exception):
            raise _not_importable(name, error) from error
        raise
    return module


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
        raise _not_importable(name, error) from error


def _not_importable(name: str, error: Exception) -> UserError:
    # Whatever their module does wrong is the user's to fix; the last frame is where.
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename}:{place.lineno}"
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}"
    reason = f"{type(error).__name__}: {shown(str(error))}"
    return UserError(f"{shown(name)}: cannot be imported ({reason}, {where})")
