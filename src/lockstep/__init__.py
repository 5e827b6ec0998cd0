"""Lockstep trains one model on any number of devices, with the same result, and provably so."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Policy", "Run", "evaluate", "load", "train"]

if TYPE_CHECKING:
    from lockstep.api import Policy, Run, evaluate, load, train


def __getattr__(name: str) -> Any:
    # Imported on first use: `import lockstep` and the command's --help stay fast without torch.
    if name in __all__:
        from lockstep import api

        return getattr(api, name)
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
