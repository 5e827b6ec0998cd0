"""Exports trained teams as submissions to the competition's platform."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lockstep.algorithms.ddpg.model import untrained_model
from lockstep.config.fields import nearest
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition import submission
from lockstep.workloads.snakes3v3.problem import snakes_problem
from lockstep.workloads.snakes3v3.settings import SnakesConfig

Arrays = dict[str, NDArray[Any]]


def export_team(config: SnakesConfig, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write a trained team for the competition's platform."""
    model = untrained_model(snakes_problem(config, torch.device("cpu")), config)
    model.load_state_dict(dict(weights))
    assert isinstance(model.actor, nn.Sequential)
    export_submission(model.actor, config.workload.observation, folder)


def export_submission(actor: nn.Sequential, observation: str, folder: Path) -> None:
    """Write a team for the competition's platform: `submission.py`, which needs only numpy, and `weights.npz`.

    The actor takes observations (B, A, D) of that kind. Allowed layers: linear, ReLU, bidirectional LSTM over the team.
    """
    if observation not in submission.OBSERVATIONS:
        known = list(submission.OBSERVATIONS)
        near = nearest(observation, known) or "rich"
        raise UserError(f'observation "{observation}": unknown; the nearest is {near}; known: {", ".join(known)}')
    # The kind of observation as bytes, because an .npz file holds only arrays.
    arrays: Arrays = {"observation": np.frombuffer(observation.encode(), dtype=np.uint8)}
    for number, layer in enumerate(actor):
        arrays |= {f"{number}.{name}": array for name, array in _layer(layer).items()}
    folder.mkdir(parents=True, exist_ok=True)
    # Without pickle: the platform loads the file with allow_pickle=False.
    with (folder / "weights.npz").open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    (folder / "submission.py").write_text(Path(submission.__file__).read_text())


def _layer(layer: nn.Module) -> Arrays:
    """The arrays of one layer, by the names that `submission.forward` looks for."""
    if isinstance(layer, nn.ReLU):
        # A ReLU has no weights; the entry only marks its place among the layers.
        return {"relu.at": np.zeros(1, dtype=np.float32)}
    lstm = getattr(layer, "lstm", None)
    if isinstance(lstm, nn.LSTM) and lstm.bidirectional and lstm.num_layers == 1:
        return _arrays("lstm", lstm)
    if isinstance(layer, nn.Linear):
        return _arrays("linear", layer)
    kind = type(layer).__name__
    raise UserError(f"a {kind} cannot be exported; allowed: Linear, ReLU, a one-layer bidirectional LSTM over the team")


def _arrays(kind: str, layer: nn.Module) -> Arrays:
    return {f"{kind}.{name}": value.detach().float().cpu().numpy() for name, value in layer.state_dict().items()}
