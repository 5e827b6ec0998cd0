"""Python objects that a caller of the API gives to a run: a function that makes environments, a model, a dataset.

This process uses the object itself. Ranks and workers are other processes of the same user; they read it, pickled, from
a file in a private folder that exists as long as the process that was given it. It is never stored in a run directory,
and nothing else is ever unpickled. Needs no torch.
"""

import atexit
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from lockstep.errors import UserError

PREFIX = "given/"
VARIABLE = "LOCKSTEP_GIVEN"
"""Names the folder for ranks and workers."""
_here: dict[str, Any] = {}
"""The objects that this process was given, by name."""
_times: list[str] = []
"""The names in the order in which they were given."""
_WHY = ".why"
"""Suffix of a file that says why an object cannot be pickled."""


def is_given(source: str) -> bool:
    """Whether a name means an object that was given in Python."""
    return source.startswith(PREFIX)


def give(thing: Any, label: str) -> str:
    """Make an object available to this process and to those it starts, as long as it runs; returns its name.

    The last object with a label counts: in a notebook the same function is defined anew whenever its cell runs.
    """
    source = PREFIX + label
    _here[source] = thing
    _times.append(source)
    os.environ[VARIABLE] = str(_folder())
    path = _path(source)
    try:
        path.write_bytes(cloudpickle.dumps(thing))
        path.with_suffix(_WHY).unlink(missing_ok=True)
    except Exception as error:
        # Not fatal: one rank without workers uses the object itself. The others are told why they cannot have it.
        path.unlink(missing_ok=True)
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        path.with_suffix(_WHY).write_text(reason, encoding="utf-8")
    return source


def times() -> int:
    """How often this process has been given an object; a process that was started before does not know the last."""
    return len(_times)


def refuse_unsendable(source: str) -> None:
    """Raise UserError if an object cannot be sent to other processes."""
    if is_given(source) and (why := _path(source).with_suffix(_WHY)).is_file():
        reason = why.read_text(encoding="utf-8")
        raise UserError(
            f"{source}: cannot be sent to other processes ({reason}); define it in a module, or use ranks=1 and no "
            "worker processes"
        )


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="lockstep-given-")
    # Only by the process that made it: ranks forked from here must not remove it.
    atexit.register(_remove, folder, owner=os.getpid())
    return Path(folder)


def _path(source: str) -> Path:
    """Where an object is, if it can be pickled."""
    return Path(os.environ.get(VARIABLE, "/nonexistent")) / f"{source.removeprefix(PREFIX)}.pkl"


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def fetch(source: str) -> Any:
    """The object with this name; UserError if no caller gave one."""
    if source in _here:
        return _here[source]
    refuse_unsendable(source)
    path = _path(source)
    if not path.is_file():
        raise UserError(
            f"{source}: was given to lockstep.train or lockstep.fit as a Python object, which is not stored; call it "
            "again with the same objects and run_name, or define them in a module"
        )
    with path.open("rb") as file:
        # Nobody else may have written it: unpickling runs code.
        status = os.fstat(file.fileno())
        # Windows keeps other users out of the folder of temporary files by itself, and has no such bits.
        if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise UserError(f"{path}: another user can write it, so it is not read")
        _here[source] = cloudpickle.load(file)
    return _here[source]
