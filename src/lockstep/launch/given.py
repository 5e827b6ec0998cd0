"""Python objects that a caller of the API gives to a run: a function that makes environments, a model, a dataset.

This process uses the object itself. Ranks and workers are other processes of the same user; they read it, pickled, from
a file in a private folder that exists as long as the run. It is never stored in a run directory, and nothing else is
ever unpickled. Needs no torch.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from lockstep.errors import UserError

PREFIX = "given:"
VARIABLE = "LOCKSTEP_GIVEN"
"""Names the file for ranks and workers."""
_here: dict[str, Any] = {}
"""The objects that this process was given, by name."""


def is_given(source: str) -> bool:
    """Whether a name means an object that was given in Python."""
    return source.startswith(PREFIX)


@contextlib.contextmanager
def available(thing: Any, label: str) -> Iterator[str]:
    """Make an object available to this process and to those it starts; yields the name to use for it."""
    source = PREFIX + label
    with tempfile.TemporaryDirectory(prefix="lockstep-given-") as folder:
        path = Path(folder) / "object.pkl"
        _here[source] = thing
        try:
            path.write_bytes(cloudpickle.dumps(thing))
            os.environ[VARIABLE] = str(path)
        except Exception as error:
            # Not fatal: one rank without workers uses the object itself.
            os.environ[VARIABLE] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        try:
            yield source
        finally:
            del _here[source], os.environ[VARIABLE]


def fetch(source: str) -> Any:
    """The object with this name; UserError if no caller gave one."""
    if source in _here:
        return _here[source]
    where = os.environ.get(VARIABLE)
    if where is None:
        raise UserError(
            f"{source}: was given to lockstep.train as a Python object, which is not stored; continue with "
            "lockstep.train(the same object, run_name=...)"
        )
    if not Path(where).is_absolute():
        raise UserError(
            f"{source}: cannot be sent to other processes ({where}); define it in a module, or use ranks=1 "
            "and env_workers=1"
        )
    with Path(where).open("rb") as file:
        # Nobody else may have written it: unpickling runs code.
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(f"{where}: belongs to another user, so it is not read")
        _here[source] = cloudpickle.load(file)
    return _here[source]
