"""Initial weights from a file: of a Lockstep run, or of the official tdmpc2 program."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
from lockstep.algorithms.tdmpc2.model.official import read_official
from lockstep.errors import UserError
from lockstep.storage.tensor_file import TensorSpec
from lockstep.storage.weights import load_weights, shape_difference

OFFICIAL = ".pt"
"""Suffix of the official program's checkpoints."""


def stored_weights(checkpoint: str, runs_dir: str, model: TDMPC2Model) -> dict[str, Tensor]:
    """The weights at a path, or of a run given by its name; UserError if they do not fit the model."""
    # A path wins over the name of a run.
    below = Path(runs_dir) / checkpoint
    path = below if not Path(checkpoint).exists() and below.exists() else Path(checkpoint)
    return fitting_weights(path, model)


def fitting_weights(path: Path, model: TDMPC2Model) -> dict[str, Tensor]:
    """The weights at a path, official (.pt) or ours; UserError if they do not fit the model."""
    needed = model.state_dict()
    # The official program does not save the value scale; it converges again within a few hundred updates.
    scale = {"value_scale": needed["value_scale"]}

    def refuse_others(weights: Mapping[str, Tensor | TensorSpec]) -> None:
        if problem := shape_difference(scale | dict(weights), needed):
            raise UserError(f"checkpoint {path}: {problem}; use its task and model_size")

    if path.suffix != OFFICIAL:
        # Lockstep's files are checked by their header, before anything is loaded.
        return scale | load_weights(path, refuse_others)[0]
    weights = read_official(path)
    refuse_others(weights)
    return scale | weights
