"""Reads actors of the competition's own program (`actor_2000.pth`) as weights of our network."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lockstep.algorithms.ddpg.settings import TeamMLPSettings
from lockstep.errors import UserError
from lockstep.storage.foreign_weights import read_state_dict
from lockstep.workloads.snakes3v3.observations.observe import SIZES
from lockstep.workloads.snakes3v3.settings import SnakesConfig

_FIRST, _SECOND, _LAST = "prev_dense.0", "post_dense.0", "post_dense.2"
"""Linear layers of its actor: observation -> hidden -> hidden -> actions."""


def read_actor(config: SnakesConfig, path: Path) -> dict[str, Tensor]:
    """The weights in a .pt or .pth file under our names; an actor of the competition's program is rewritten as ours."""
    stored = read_state_dict(path)
    if f"{_FIRST}.weight" not in stored:
        return stored
    if any(name.startswith("comm_net") for name in stored):
        raise UserError(f"{path}: a BiCNet actor, which has no ReLU before its LSTM as ours does; give one of ddpg")
    parts = [f"{layer}.{kind}" for layer in (_FIRST, _SECOND, _LAST) for kind in ("weight", "bias")]
    if absent := [name for name in parts if name not in stored]:
        raise UserError(f"{path}: an actor of the competition without {absent[0]}; it is not complete")
    if not isinstance(config.network, TeamMLPSettings):
        raise UserError(f"{path}: an actor of the competition, which has no place in {config.run.network}; use mlp")
    _check(config, config.network.hidden_size, path, stored)
    actor = _rewritten(stored, config.network.hidden_layers)
    # Targets start out equal to their networks, as in a new run.
    return {f"{part}.{name}": value for part in ("actor", "target_actor") for name, value in actor.items()}


def _check(config: SnakesConfig, width: int, path: Path, stored: Mapping[str, Tensor]) -> None:
    """Refuse sizes that would leave the actor in pieces; each hint is a flag."""
    shapes = {name: tuple(value.shape) for name, value in stored.items()}
    hidden, seen = stored[f"{_FIRST}.bias"].numel(), (0, *shapes[f"{_FIRST}.weight"])[-1]
    kinds = [kind for kind, size in SIZES.items() if size == seen]
    if seen != SIZES[config.workload.observation]:
        hint = f"add --observation {kinds[0]}" if kinds else f"known sizes: {', '.join(map(str, SIZES.values()))}"
        raise UserError(f"{path}: an actor that sees {seen} numbers, not {config.workload.observation}; {hint}")
    if config.algorithm.algo == "bicnet":
        raise UserError(f"{path}: an actor without an LSTM, which --algo bicnet has; use --algo ddpg")
    expected = {_FIRST: (hidden, seen), _SECOND: (hidden, hidden), _LAST: (4, hidden)}
    if any((shapes[f"{layer}.weight"], shapes[f"{layer}.bias"]) != (s, s[:1]) for layer, s in expected.items()):
        raise UserError(f"{path}: an actor whose layers do not follow each other; it is damaged")
    if width != hidden:
        raise UserError(f"{path}: an actor with {hidden} hidden units; add --hidden-size {hidden}")


def _rewritten(stored: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The same function in our layers: Linear, ReLU, ..., Linear, numbered with their ReLUs."""
    # Its first two layers have no activation between them and so are one linear map: in float64, since it is rounded.
    weights = {name: value.double() for name, value in stored.items()}
    outer, inner = weights[f"{_SECOND}.weight"], weights[f"{_FIRST}.weight"]
    bias = outer @ weights[f"{_FIRST}.bias"] + weights[f"{_SECOND}.bias"]
    actor = {"0.weight": (outer @ inner).float(), "0.bias": bias.float()}
    for number in range(1, layers):
        # The identity: a ReLU of what a ReLU let through changes nothing.
        actor |= {f"{2 * number}.weight": torch.eye(len(bias)), f"{2 * number}.bias": torch.zeros(len(bias))}
    return actor | {f"{2 * layers}.{kind}": stored[f"{_LAST}.{kind}"].float() for kind in ("weight", "bias")}
