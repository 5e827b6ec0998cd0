"""Continuous control as a problem to learn: tasks as environments on the host, and their recorded episodes."""

from pathlib import Path

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.offline import check_data
from lockstep.algorithms.tdmpc2.model.first_weights import fitting_weights, stored_weights
from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
from lockstep.algorithms.tdmpc2.problem import TDMPC2Problem
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.world_model import WorldModelSettings
from lockstep.errors import UserError
from lockstep.rl.problem import Continuous, Tasks
from lockstep.workloads.control.env import ControlEnv, make_env, task_facts
from lockstep.workloads.control.episodes import EpisodeFiles
from lockstep.workloads.control.settings import ControlConfig, ControlSettings

# Simulators run on the CPU; the algorithm moves what it needs to its own device.
_HOST = torch.device("cpu")


def control_problem(settings: ControlSettings) -> TDMPC2Problem:
    """The tasks of the settings; starts no simulator."""
    facts = task_facts(settings)

    def environments(index: Tensor, seed: int) -> ControlEnv:
        return make_env(settings, index, seed, _HOST)

    def recorded(folder: Path) -> EpisodeFiles:
        return EpisodeFiles(folder, facts)

    return TDMPC2Problem(
        name="control",
        observation_shape=(facts.obs_dim,),
        actions=Continuous(facts.action_dim),
        make_env=environments,
        hosted=True,
        tasks=Tasks(facts.action_dims, facts.episode_lengths, facts.episodic, facts.tasks),
        recorded=recorded,
        # Public checkpoints of mt30 and mt80 must fit.
        other_sizes=settings.other_sizes,
    )


def check_inputs(config: ControlConfig) -> list[str]:
    """Check the initial weights and recorded episodes of a run; returns a line about what was found."""
    algorithm = config.algorithm
    if not isinstance(algorithm, TDMPC2Settings):
        return []
    if algorithm.checkpoint:
        # Read only to check it: a wrong file is then refused before any rank starts.
        stored_weights(algorithm.checkpoint, config.run.runs_dir, _model(config))
    if not algorithm.offline:
        return []
    files = EpisodeFiles(Path(algorithm.data_dir), task_facts(config.workload))
    return [check_data(files, algorithm, config.effective_lanes)]


def official_weights(config: ControlConfig, path: Path) -> dict[str, Tensor]:
    """Weights from a checkpoint of the official TD-MPC2, under Lockstep's names; UserError if they do not fit."""
    if not isinstance(config.algorithm, TDMPC2Settings):
        raise UserError(
            f"{path}: holds weights of tdmpc2, but {config.run.algorithm} has other networks; use algorithm tdmpc2"
        )
    return fitting_weights(path, _model(config))


def _model(config: ControlConfig) -> TDMPC2Model:
    algorithm, network = config.algorithm, config.network
    assert isinstance(algorithm, TDMPC2Settings) and isinstance(network, WorldModelSettings)
    return network.build(control_problem(config.workload), config)
