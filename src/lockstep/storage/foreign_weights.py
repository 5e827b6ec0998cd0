"""Weights that other programs stored with `torch.save`: a state dict, alone or as an entry of a checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.tensor_file import plain_names
from lockstep.storage.torch_file import read_torch_file

SUFFIXES = (".pt", ".pth", ".zip")
"""How the files of other programs end: torch.save's, and the archives of Stable-Baselines3."""
# Under which keys programs commonly keep the weights in a checkpoint that also holds other things.
_ENTRIES = ("model", "state_dict", "model_state_dict", "network_state_dict", "policy")


def is_foreign(path: Path) -> bool:
    """Whether a path is a file of another program, by its suffix."""
    return path.suffix in SUFFIXES and not path.is_dir()


def read_state_dict(path: Path, inside: str = "") -> dict[str, Tensor]:
    """The weights in a file by their names there, read without unpickling; UserError if it holds none.

    `inside`: the file to read in an archive of several.
    """
    try:
        content = read_torch_file(path, inside)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: {reason}; allowed: a run, a checkpoint, .safetensors, .pt, .pth") from error
    for entry in (content, *(content.get(name) for name in _ENTRIES if isinstance(content, dict))):
        if weights := _tensors(entry):
            return plain_names(weights)
    raise UserError(f"{path}: holds no weights: neither a state dict nor a checkpoint with one ({', '.join(_ENTRIES)})")


def _tensors(entry: Any) -> dict[str, Tensor]:
    # Bookkeeping beside the tensors, such as a count of episodes, is left out.
    if not isinstance(entry, Mapping):
        return {}
    return {name: value for name, value in entry.items() if isinstance(name, str) and isinstance(value, Tensor)}
