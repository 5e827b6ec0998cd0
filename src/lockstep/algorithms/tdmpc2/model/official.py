"""Reads checkpoints of the official tdmpc2 program as initial weights, and renames them to ours."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.torch_file import read_torch_file

_PREFIXES = {
    "_encoder.state": "world.encoder",
    "_dynamics": "world.dynamics",
    "_reward": "world.reward",
    "_termination": "world.termination",
    "_Qs.params": "world.values",
    "_target_Qs_params": "target",
    "_target_Qs.params": "target",
    "_pi": "policy.layers",
}
_DERIVED = re.compile(
    r"_detach_Qs_params\..*|_detach_Qs\..*|_action_masks|log_std_(min|dif)|.*__batch_size|.*__device|.*\.module\..*"
)
"""Derived from other weights or the configuration: copies of the values, masks, bounds, bookkeeping."""
_OLD_ORDER = ("weight", "bias", "ln.weight", "ln.bias")
"""In checkpoints from before 2025 the weights of the values are numbered: four per layer, in this order."""


def read_official(path: Path) -> dict[str, Tensor]:
    """The weights of an official checkpoint (.pt) by our names, read without unpickling; UserError for other files."""
    try:
        content = read_torch_file(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"checkpoint {path}: {reason}; allowed are runs, .safetensors and tdmpc2's .pt files"
        ) from error
    # train.py saves {"model": state dict}; a bare state dict is accepted too.
    weights = content.get("model", content) if isinstance(content, dict) else content
    if not isinstance(weights, dict) or not _is_official(weights):
        raise UserError(f"checkpoint {path}: holds no weights of a tdmpc2 world model")
    return converted({name: value for name, value in weights.items() if isinstance(value, Tensor)})


def _is_official(weights: dict[Any, Any]) -> bool:
    return all(any(str(name).startswith(prefix) for name in weights) for prefix in ("_encoder.", "_dynamics.", "_pi."))


def converted(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An official state dict with our names, without derived tensors."""
    ours: dict[str, Tensor] = {}
    for name, value in weights.items():
        if _DERIVED.fullmatch(name):
            continue
        if name == "_task_emb.weight":
            ours["world.tasks.weight"] = value
            continue
        # With the dot, so that `_Qs.params` does not match a longer name.
        prefix = next((prefix for prefix in _PREFIXES if name.startswith(f"{prefix}.")), None)
        if prefix is None:
            raise UserError(f"tensor {name} of the checkpoint does not belong to a tdmpc2 world model on states")
        ours[f"{_PREFIXES[prefix]}.{_inside(name.removeprefix(f'{prefix}.'))}"] = value
    return ours


def _inside(name: str) -> str:
    """Our name within a network: `1.norm.weight` for `1.ln.weight`, and for the old `6`."""
    if name.isdigit():
        name = f"{int(name) // 4}.{_OLD_ORDER[int(name) % 4]}"
    return name.replace(".ln.", ".norm.")
