"""Reads Stable-Baselines3 archives (PPO.save) as weights of Snake's network. Does not need stable-baselines3."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.foreign_weights import read_state_dict
from lockstep.workloads.snake import model
from lockstep.workloads.snake.settings import SnakeCNNSettings, SnakeConfig

_EXTRACTOR = "features_extractor."
_POLICY = "policy.pth"
"""The entry of the archive that holds the weights."""
_HEADS = {"action_net": "actor", "value_net": "critic"}


def read_sb3(config: SnakeConfig, path: Path) -> dict[str, Tensor]:
    """The policy in an archive under our names; other names stay as they are, for layers that our network lacks."""
    if not isinstance(config.network, SnakeCNNSettings):
        raise UserError(f"{path}: a Stable-Baselines3 policy, which has no place in {config.run.network}; allowed: cnn")
    stored = read_state_dict(path, inside=_POLICY)
    if not any(name.startswith(_EXTRACTOR) for name in stored):
        raise UserError(f"{path}: its {_POLICY} is not a policy of Stable-Baselines3's PPO with a features extractor")
    ours = {}
    for name, value in stored.items():
        layer, _, kind = name.rpartition(".")
        # Both heads share one extractor, which SB3 stores three times.
        if not name.startswith((_EXTRACTOR, "pi_", "vf_")):
            ours[f"{_HEADS[layer]}.{kind}" if layer in _HEADS else name] = value
    return ours | _features(config, stored)


def _features(config: SnakeConfig, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The extractor's layers, matched in order: everybody names the layers of an own extractor differently."""
    network, rules = config.network, config.workload
    layers = model.features(
        network.policy_arch, 3 * rules.frame_stack, rules.grid_size, network.policy_width, network.policy_depth
    ).state_dict()
    theirs = {name: value for name, value in stored.items() if name.startswith(_EXTRACTOR)}
    matched, used = {}, set()
    # Convolutions, linear layers and the biases of both, each among their own: another depth then shifts nothing.
    for kind in ("4.weight", "4.bias", "2.weight", "2.bias"):
        for own, name in zip(_of_kind(layers, kind), _of_kind(theirs, kind), strict=False):
            matched[f"features.{own}"] = theirs[name]
            used.add(name)
    return matched | {name: value for name, value in theirs.items() if name not in used}


def _of_kind(tensors: Mapping[str, Tensor], kind: str) -> list[str]:
    """The weights of layers with so many axes, or their biases, in order."""
    axes, part = kind.split(".")
    weights = [name for name, value in tensors.items() if name.endswith("weight") and value.dim() == int(axes)]
    names = [name.removesuffix("weight") + part for name in weights]
    return [name for name in names if name in tensors]
