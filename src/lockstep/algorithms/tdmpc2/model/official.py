"""Weights of the official tdmpc2 program under our names."""

import re
from collections.abc import Mapping

from torch import Tensor

from lockstep.config.values import shown
from lockstep.errors import UserError

_IMAGES = "_encoder.rgb"
_PREFIXES = {
    "_encoder.state": "world.encoder",
    _IMAGES: "world.encoder",
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


def is_official(weights: Mapping[str, Tensor]) -> bool:
    """Whether a state dict has the names of the official program's world model."""
    return all(any(name.startswith(prefix) for name in weights) for prefix in ("_encoder.", "_dynamics.", "_pi."))


_CONVOLUTIONS = {"2": 0, "4": 1, "6": 2, "8": 3}


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
            raise UserError(f"tensor {shown(name)} of the checkpoint does not belong to a tdmpc2 world model")
        inside = name.removeprefix(f"{prefix}.")
        ours[f"{_PREFIXES[prefix]}.{_convolution(inside) if prefix == _IMAGES else _inside(inside)}"] = value
    return ours


def _convolution(name: str) -> str:
    """Our name within the image encoder: `0.weight` for `2.weight`."""
    # There, two layers without weights come before the first convolution, and a ReLU after each.
    number, _, rest = name.partition(".")
    return f"{_CONVOLUTIONS[number]}.{rest}" if number in _CONVOLUTIONS else name


def _inside(name: str) -> str:
    """Our name within a network: `1.norm.weight` for `1.ln.weight`, and for the old `6`."""
    if name.isdigit():
        name = f"{int(name) // 4}.{_OLD_ORDER[int(name) % 4]}"
    return name.replace(".ln.", ".norm.")
