"""The networks of a team, and the weights that a run may begin with."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from lockstep.algorithms.ddpg.model import DDPGModel, vectors_of
from lockstep.algorithms.ddpg.networks import Sizes, build_networks
from lockstep.errors import UserError
from lockstep.storage.tensor_file import Form
from lockstep.storage.weights import load_weights, misfit
from lockstep.workloads.snakes3v3.config import ACTIONS, SnakesConfig
from lockstep.workloads.snakes3v3.observations import SIZES

_FIRST_LAYER = "actor.0.weight"


def networks(config: SnakesConfig) -> tuple[nn.Module, nn.Module]:
    """The actor and the critics that a configuration asks for, with their initial weights."""
    sizes = Sizes(
        features=SIZES[config.observation],
        agents=config.team_size,
        actions=ACTIONS,
        hidden=config.hidden_size,
        layers=config.hidden_layers,
        critics=2 if config.twin_critics else 1,
    )
    return build_networks(config.algo, sizes, config.seed, config.critic)


def whole_model(config: SnakesConfig) -> DDPGModel:
    """Actor, critics and their targets, as a run of this configuration begins with them."""
    return DDPGModel(*networks(config), vectors_of(config, ACTIONS))


def stored_weights(config: SnakesConfig) -> dict[str, Tensor]:
    """The weights of `load_model`; refused where a run of this configuration has no use for them."""
    needed = whole_model(config).state_dict()
    below = Path(config.runs_dir) / config.load_model
    path = below if not Path(config.load_model).exists() and below.exists() else Path(config.load_model)
    return load_weights(path, lambda forms: _refuse_others(config, forms, needed))[0]


def _refuse_others(config: SnakesConfig, weights: Mapping[str, Form], needed: Mapping[str, Tensor]) -> None:
    told = f"load_model {config.load_model}"
    first = weights.get(_FIRST_LAYER)
    if first is not None and len(first.shape) == 2 and first.shape[1] != needed[_FIRST_LAYER].shape[1]:
        found = first.shape[1]
        kind = next((kind for kind, size in SIZES.items() if size == found), None)
        hint = f"add --observation {kind}" if kind else f"known sizes: {', '.join(map(str, SIZES.values()))}"
        raise UserError(
            f"{told}: sees {found} numbers, observation {config.observation} has {SIZES[config.observation]}; {hint}"
        )
    if problem := misfit(weights, needed):
        raise UserError(f"{told}: {problem}; use the algo, critic and sizes that it has")
