"""Lockstep trains one model on any number of devices, with the same result, and provably so."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.version import __version__

__all__ = ["Policy", "Run", "__version__", "evaluate", "load", "train"]

if TYPE_CHECKING:
    from lockstep.api import Policy, Run, evaluate, load, train


def __getattr__(name: str) -> Any:
    # Imported on first use: `import lockstep` and the command's --help stay fast without torch.
    if name in __all__:
        from lockstep import api

        return getattr(api, name)
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")


def _register_environments() -> None:
    """Let `gymnasium.make("lockstep/...")` work after `import lockstep`; the command has no use for Gymnasium."""
    if sys.argv and Path(sys.argv[0]).name in ("lockstep", "-m"):
        return
    from lockstep.workloads.registry import register_environments

    register_environments()


_register_environments()
