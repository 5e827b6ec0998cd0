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
_unsendable: dict[str, str] = {}
"""Why some of them cannot be pickled."""


def is_given(source: str) -> bool:
    """Whether a name means an object that was given in Python."""
    return source.startswith(PREFIX)


def give(thing: Any, label: str) -> str:
    """Make an object available to this process and to those it starts, as long as it runs; returns its name.

    The last object with a label counts: in a notebook the same function is defined anew whenever its cell runs.
    """
    source = PREFIX + label
    _here[source] = thing
    path = _folder() / f"{label}.pkl"
    try:
        path.write_bytes(cloudpickle.dumps(thing))
        os.environ[VARIABLE] = str(_folder())
    except Exception as error:
        # Not fatal: one rank without workers uses the object itself.
        _unsendable[source] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        path.unlink(missing_ok=True)
    return source


def refuse_unsendable(source: str) -> None:
    """Raise UserError if an object cannot be sent to the processes that are about to need it."""
    if source in _unsendable:
        raise UserError(
            f"{source}: cannot be sent to other processes ({_unsendable[source]}); define it in a module, or use "
            "one rank without workers"
        )


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="lockstep-given-")
    # Only by the process that made it: ranks forked from here must not remove it.
    atexit.register(_remove, folder, owner=os.getpid())
    return Path(folder)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def fetch(source: str) -> Any:
    """The object with this name; UserError if no caller gave one."""
    if source in _here:
        return _here[source]
    folder = os.environ.get(VARIABLE, "")
    path = Path(folder) / f"{source.removeprefix(PREFIX)}.pkl"
    if not folder or not path.is_file():
        raise UserError(
            f"{source}: was given to lockstep.train or lockstep.fit as a Python object, which is not stored; call it "
            "again with the same objects and run_name, or define them in a module"
        )
    with path.open("rb") as file:
        # Nobody else may have written it: unpickling runs code.
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(f"{path}: another user can write it, so it is not read")
        _here[source] = cloudpickle.load(file)
    return _here[source]
