"""Loads the weights of an earlier model as a run's initial weights (`load_model`)."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.tensor_file import TensorSpec
from lockstep.storage.weights import load_weights, shape_difference
from lockstep.workloads.snakes3v3.observations.observe import SIZES
from lockstep.workloads.snakes3v3.settings import SnakesConfig, SnakesSettings

_FIRST_LAYER = "actor.0.weight"
"""Its second axis is the size of the observation."""


def stored_weights(config: SnakesConfig, needed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `load_model`; UserError if their names and shapes are not those of `needed`."""
    settings = config.workload
    # A path that exists takes precedence over the name of a run.
    run = Path(config.run.runs_dir) / settings.load_model
    path = run if not Path(settings.load_model).exists() and run.exists() else Path(settings.load_model)
    return load_weights(path, lambda forms: _refuse_mismatch(settings, forms, needed))[0]


def _refuse_mismatch(settings: SnakesSettings, weights: Mapping[str, TensorSpec], needed: Mapping[str, Tensor]) -> None:
    source = f"load_model {settings.load_model}"
    first = weights.get(_FIRST_LAYER)
    # Another kind of observation is the usual mistake, so it is reported before any other difference.
    if first is not None and len(first.shape) == 2 and first.shape[1] != needed[_FIRST_LAYER].shape[1]:
        found, expected = first.shape[1], SIZES[settings.observation]
        kind = next((kind for kind, size in SIZES.items() if size == found), None)
        hint = f"add --observation {kind}" if kind else f"known sizes: {', '.join(map(str, SIZES.values()))}"
        raise UserError(f"{source}: sees {found} numbers, observation {settings.observation} has {expected}; {hint}")
    if problem := shape_difference(weights, needed):
        raise UserError(f"{source}: {problem}; use the algo, critic and sizes it was trained with")
