"""Writes trained teams for other programs."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.model import untrained_model
from lockstep.workloads.snakes3v3.competition import export_submission
from lockstep.workloads.snakes3v3.problem import snakes_problem
from lockstep.workloads.snakes3v3.settings import SnakesConfig


def export_team(config: SnakesConfig, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write a trained team for the competition's platform."""
    model = untrained_model(snakes_problem(config, torch.device("cpu")), config)
    model.load_state_dict(dict(weights))
    assert isinstance(model.actor, nn.Sequential)
    export_submission(model.actor, config.workload.observation, folder)
